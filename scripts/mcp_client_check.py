#!/usr/bin/env python3
"""Checks of `agentfly tools serve` with the official Python client of MCP.

    mcp_client_check.py stdio PROGRAM     starts PROGRAM tools serve calculator
    mcp_client_check.py http URL          uses a running `agentfly tools serve --http`
"""
import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


async def check(read, write):
    async with ClientSession(read, write) as session:
        started = await session.initialize()
        assert started.serverInfo.name == "agentfly", started
        offered = (await session.list_tools()).tools
        assert [t.name for t in offered] == ["calculator"], offered
        schema = offered[0].inputSchema
        assert schema["type"] == "object" and schema["required"] == ["expression"], schema
        assert schema["properties"]["expression"]["type"] == "string", schema
        right = await session.call_tool("calculator", {"expression": "347 + 589"})
        assert not right.isError and [c.text for c in right.content] == ["936"], right
        for arguments, want in (({"expression": "1 / 0"}, "division by zero"), ({}, "expression"), ({"expresion": "1"}, "expression")):
            wrong = await session.call_tool("calculator", arguments)
            assert wrong.isError and want in wrong.content[0].text, (arguments, wrong)
        try:
            unknown = await session.call_tool("none", {})
            assert unknown.isError, unknown
        except Exception as e:  # some versions raise what the server refuses
            assert "none" in str(e), e
        many = await asyncio.gather(*(session.call_tool("calculator", {"expression": f"{i} * {i}"}) for i in range(200)))
        assert [m.content[0].text for m in many] == [str(i * i) for i in range(200)]
        await session.send_ping()


async def main():
    way, where = sys.argv[1:]
    if way == "stdio":
        server = StdioServerParameters(command=where, args=["tools", "serve", "calculator"], env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            await check(read, write)
    else:
        async with streamablehttp_client(where) as (read, write, _):
            await check(read, write)
    print(f"mcp_client_check: {way}: passed")


asyncio.run(asyncio.wait_for(main(), 60))
