"""Calls of each kind, trailers, an error without a body, and a method that no rule permits."""

import sys

import grpc

roots = open(sys.argv[1], "rb").read()
channel = grpc.secure_channel("rpc.clients.example:443", grpc.ssl_channel_credentials(roots))
reply, call = channel.unary_unary("/demo.Demo/Echo").with_call(b"x" * 100_000, timeout=20)
assert len(reply) == 100_000 and ("x-length", "100000") in call.trailing_metadata(), call
assert list(channel.unary_stream("/demo.Demo/Count")(b"5", timeout=20)) == [b"0", b"1", b"2", b"3", b"4"]
assert channel.stream_unary("/demo.Demo/Add")(iter([b"1", b"2", b"3"]), timeout=20) == b"6"
for method, expected in (
    ("/demo.Demo/Fail", grpc.StatusCode.FAILED_PRECONDITION),
    ("/demo.Demo/Hidden", grpc.StatusCode.PERMISSION_DENIED),
):
    try:
        channel.unary_unary(method)(b"x", timeout=20)
        raise SystemExit(f"{method} was answered")
    except grpc.RpcError as error:
        assert error.code() == expected, error
print("grpc ok")
