"""Settings: Django and Relevo share one PostgreSQL, here Relevo's own in `.relevo`."""

import django

import relevo.sync
from relevo.integrations.django import database

# Relevo's own PostgreSQL, or that of RELEVO_DATABASE_URL. If you have DATABASES already, keep it,
# and write `app = relevo.App(database_url())` in jobs.py.
RELEVO = relevo.sync.App()
DATABASES = {"default": database(RELEVO.database_url)}
RELEVO_APP = "shop.jobs.app"
INSTALLED_APPS = ["relevo.integrations.django", "shop"]
if django.VERSION >= (6, 0):
    BACKEND = "relevo.integrations.django.tasks.RelevoBackend"
    TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"retries": 0}}}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "shop.urls"
SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
USE_TZ = True
