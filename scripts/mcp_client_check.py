#!/usr/bin/env python3
"""Checks of `agentfly tools serve` with the official Python client of MCP, versions 1 and 2.

    mcp_client_check.py stdio PROGRAM     starts PROGRAM tools serve calculator
    mcp_client_check.py http URL          uses a running `agentfly tools serve --http`
"""
import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client import streamable_http
from mcp.client.stdio import stdio_client

http_client = getattr(streamable_http, "streamable_http_client", None) or streamable_http.streamablehttp_client


def field(value, old, new):
    """A field that version 2 names otherwise."""
    return getattr(value, old) if hasattr(value, old) else getattr(value, new)


async def check(session):
    offered = (await session.list_tools()).tools
    assert [t.name for t in offered] == ["calculator"], offered
    schema = field(offered[0], "inputSchema", "input_schema")
    assert schema["type"] == "object" and schema["required"] == ["expression"], schema
    assert schema["properties"]["expression"]["type"] == "string", schema
    right = await session.call_tool("calculator", {"expression": "347 + 589"})
    assert not field(right, "isError", "is_error") and [c.text for c in right.content] == ["936"], right
    for arguments, want in (({"expression": "1 / 0"}, "division by zero"), ({}, "expression"), ({"expresion": "1"}, "did you mean")):
        wrong = await session.call_tool("calculator", arguments)
        assert field(wrong, "isError", "is_error") and want in wrong.content[0].text, (arguments, wrong)
    try:
        unknown = await session.call_tool("none", {})
        assert field(unknown, "isError", "is_error"), unknown
    except Exception as e:  # the client raises what the server refuses
        assert "none" in str(e), e
    many = await asyncio.gather(*(session.call_tool("calculator", {"expression": f"{i} * {i}"}) for i in range(200)))
    assert [m.content[0].text for m in many] == [str(i * i) for i in range(200)]


async def handshake(transport):
    async with transport as (read, write, *_):
        async with ClientSession(read, write) as session:
            started = await session.initialize()
            assert field(started, "serverInfo", "server_info").name == "agentfly", started
            await check(session)
            await session.send_ping()


async def main():
    way, where = sys.argv[1:]

    def transport():
        if way == "http":
            return http_client(where)
        return stdio_client(StdioServerParameters(command=where, args=["tools", "serve", "calculator"], env=dict(os.environ)))

    await handshake(transport())
    ways = ["handshake"]
    try:
        from mcp import Client
    except ImportError:  # version 1
        pass
    else:
        async with Client(transport()) as client:  # asks what the server speaks first
            await check(client)
        ways.append("discovery")
    print(f"mcp_client_check: {way}, {' and '.join(ways)}: passed")


asyncio.run(asyncio.wait_for(main(), 60))
