"""A shop on Django: an order and its receipt are one commit.

python manage.py migrate
python manage.py relevo_host        # in a second terminal: runs the receipts
python manage.py runserver          # curl -X POST localhost:8000/orders -d dish=soup
"""

import os
import sys

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
