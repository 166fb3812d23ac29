from agentfly.tools.search import dense_search
