"""What every REST endpoint shares.

The route table, request checks, responses, pages, streams, the OpenAPI document.
"""
