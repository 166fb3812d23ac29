import sys

from agentfly import tool

print('{"id": 2, "result": "forged"}')


@tool()
def loud(text: str):
    print('{"id": 3, "result": "forged"}')
    sys.stdout.write("more\n")
    sys.stderr.write("and more\n")
    return text
