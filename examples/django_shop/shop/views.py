"""Answers to requests."""

from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from relevo.integrations.django import client, submit
from shop.jobs import receipt
from shop.models import Order


@csrf_exempt
def orders(request: HttpRequest) -> HttpResponse:
    """Store an order and submit its receipt, both or neither; or list the dishes."""
    if request.method == "GET":
        return JsonResponse({"orders": list(Order.objects.values_list("dish", flat=True))})
    try:
        with transaction.atomic():
            order = Order.objects.create(dish=request.POST["dish"])
            job = submit(receipt, order=order.pk)  # without on_commit
            if order.dish == "nothing":
                raise ValueError("nothing is not a dish")
    except ValueError as error:
        return JsonResponse({"error": str(error)}, status=422)
    return JsonResponse({"order": order.pk, "job": str(job.id)}, status=201)


def receipts(_: HttpRequest, job: UUID) -> HttpResponse:
    """Return a receipt, or the status of its job."""
    found = client().job(job).get()
    return JsonResponse({"status": found.status, "receipt": found.result})
