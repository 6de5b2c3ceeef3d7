"""A gRPC server without generated code: bytes in, bytes out."""

import sys
from concurrent import futures

import grpc


def echo(request, context):
    context.set_trailing_metadata((("x-length", str(len(request))),))
    return request


def count(request, context):
    for number in range(int(request)):
        yield str(number).encode()


def fail(request, context):
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")


def add(requests, context):
    return str(sum(int(number) for number in requests)).encode()


handlers = grpc.method_handlers_generic_handler(
    "demo.Demo",
    {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Add": grpc.stream_unary_rpc_method_handler(add),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Hidden": grpc.unary_unary_rpc_method_handler(echo),
    },
)
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((handlers,))
key, certificate = (open(path, "rb").read() for path in sys.argv[1:3])
server.add_secure_port("[3ffe:b00::86]:443", grpc.ssl_server_credentials([(key, certificate)]))
server.start()
server.wait_for_termination()
