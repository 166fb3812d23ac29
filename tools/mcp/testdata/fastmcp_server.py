"""A server made with the official Python library, version 1 or 2, for our client: fastmcp_server.py stdio|PORT."""
import sys
from enum import Enum
from typing import Literal, Optional

from pydantic import BaseModel

if sys.argv[1] == "stdio":
    http, options = {}, {}
else:
    http, options = {"port": int(sys.argv[1])}, {"transport": "streamable-http"}
try:
    from mcp.server.mcpserver import Image, MCPServer
except ImportError:  # version 1
    from mcp.server.fastmcp import FastMCP, Image

    server = FastMCP("fast", **http)
else:
    server = MCPServer("fast")
    options |= http


class Unit(Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


class Place(BaseModel):
    city: str
    country: Optional[str] = None


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
async def weather(place: Place, unit: Unit = Unit.CELSIUS, days: list[int] = [], style: Literal["short", "long"] = "short") -> dict:
    """The weather of a place."""
    return {"city": place.city, "country": place.country, "unit": unit.value, "days": sum(days), "style": style}


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"\x89PNG", format="png")


server.run(**options)
