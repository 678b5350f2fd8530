"""A small MCP server that runs a pretend shop: eight tools, from harmless to final.

Run it by hand with `python examples/shop_server.py`; it speaks MCP on standard input and output. The
demo registers it as `shop`. It shows why a task should not see every tool: a support agent may look up
an order, and has no business refunding it.
"""

from itertools import count
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
DESTROYS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

Sku = Annotated[str, Field(description="Article number, as `search_products` shows it.")]
OrderId = Annotated[int, Field(description="Order number, as `place_order` returned it.")]
Quantity = Annotated[int, Field(description="Pieces.", ge=1, le=100)]


class Product(BaseModel):
    """Something for sale."""

    sku: str
    name: str
    cents: int
    stock: int


class Line(BaseModel):
    """One position of an order."""

    sku: Sku
    quantity: Quantity = 1


class Order(BaseModel):
    """What a customer bought."""

    id: int
    lines: list[Line]
    cents: int
    state: Literal["placed", "cancelled", "refunded"] = "placed"


products = {
    product.sku: product
    for product in (
        Product(sku="TEA-1", name="Green tea, 100 g", cents=690, stock=40),
        Product(sku="TEA-2", name="Black tea, 100 g", cents=590, stock=12),
        Product(sku="CUP-1", name="Cup, white", cents=1250, stock=3),
        Product(sku="POT-1", name="Tea pot, cast iron", cents=4900, stock=0),
    )
}
orders: dict[int, Order] = {}
numbers = count(1001)

server = MCPServer("shop", instructions="A pretend tea shop. Quote a cart before you place an order.")


@server.tool(annotations=READS)
def search_products(words: str = "") -> list[Product]:
    """Find products whose name holds every one of the words, in any case; no words find all."""
    wanted = words.lower().split()
    return [one for one in products.values() if all(word in one.name.lower() for word in wanted)]


@server.tool(annotations=READS)
def check_stock(sku: Sku) -> int:
    """How many pieces of a product are in stock."""
    return _product(sku).stock


@server.tool(annotations=READS)
def quote_cart(lines: list[Line]) -> int:
    """What a cart would cost, in cents, shipping included."""
    return _price(lines)


@server.tool(annotations=READS)
def get_order(order_id: OrderId) -> Order:
    """Look up an order and its state."""
    return _order(order_id)


@server.tool(annotations=WRITES)
def place_order(lines: list[Line]) -> Order:
    """Place an order and take its goods from stock."""
    for line in lines:
        if _product(line.sku).stock < line.quantity:
            raise ValueError(f"only {_product(line.sku).stock} of {line.sku} are in stock")
    for line in lines:
        _product(line.sku).stock -= line.quantity
    order = Order(id=next(numbers), lines=lines, cents=_price(lines))
    orders[order.id] = order
    return order


@server.tool(annotations=WRITES)
def restock_product(sku: Sku, quantity: Quantity) -> Product:
    """Put pieces of a product into stock."""
    product = _product(sku)
    product.stock += quantity
    return product


@server.tool(annotations=DESTROYS)
def cancel_order(order_id: OrderId) -> Order:
    """Cancel an order and put its goods back. It cannot be placed again."""
    order = _order(order_id)
    if order.state != "placed":
        raise ValueError(f"order {order_id} is {order.state} already")
    for line in order.lines:
        _product(line.sku).stock += line.quantity
    order.state = "cancelled"
    return order


@server.tool(annotations=DESTROYS)
def refund_order(order_id: OrderId) -> Order:
    """Pay an order back. The money is gone."""
    order = _order(order_id)
    order.state = "refunded"
    return order


def _product(sku: str) -> Product:
    if sku not in products:
        raise ValueError(f"there is no product {sku}")
    return products[sku]


def _order(order_id: int) -> Order:
    if order_id not in orders:
        raise ValueError(f"there is no order {order_id}")
    return orders[order_id]


def _price(lines: list[Line]) -> int:
    goods = sum(_product(line.sku).cents * line.quantity for line in lines)
    return goods + (0 if goods >= 5000 else 490)


if __name__ == "__main__":
    server.run()
