"""Tasks of Django's own framework, from Django 6.0 on; the backend is Relevo's."""

from django.tasks import task


@task
def bill(order: int, *, currency: str = "EUR") -> str:
    """Write the bill of an order."""
    return f"bill for order {order} in {currency}"


@task(takes_context=True, priority=50)
def flaky(context: object, order: int) -> str:
    """Raise; with `retries=0` the task then fails."""
    raise LookupError(f"no order {order}")
