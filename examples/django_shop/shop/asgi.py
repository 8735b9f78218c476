"""The project over ASGI, with Relevo's dashboard at /relevo/."""

import os

from django.core.asgi import get_asgi_application

from relevo.integrations.django.asgi import with_dashboard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
application = with_dashboard(get_asgi_application())
