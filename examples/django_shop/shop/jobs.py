"""What runs in the background."""

import relevo

app = relevo.App()


@app.job("receipt", retries=5)
def receipt(order: int) -> str:
    """Write the receipt of an order; a plain function may use the ORM."""
    from shop.models import Order

    found = Order.objects.get(pk=order)
    return f"order {found.pk}: {found.dish}"
