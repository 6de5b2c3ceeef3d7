"""Writes vectors.json: requests as botocore signs them.

python3 vectors.py > vectors.json
"""
import datetime
import json
import unittest.mock

import botocore
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
ID, KEY, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session/token+x=="

CASES = [
    ("s3", "GET", "https://b.s3.eu-west-1.amazonaws.com/", {}, b""),
    ("s3", "GET", "https://b.s3.eu-west-1.amazonaws.com/a%20b/c%2Bd%3Ae%40f?list-type=2&prefix=x%2Fy", {}, b""),
    ("s3", "PUT", "https://b.s3.eu-west-1.amazonaws.com/key", {"content-type": "text/plain", "x-amz-meta-a": "  two   words "}, b"hello"),
    ("s3", "PUT", "https://b.s3.eu-west-1.amazonaws.com/key", {"x-amz-content-sha256": "UNSIGNED-PAYLOAD"}, b"hello"),
    ("dynamodb", "POST", "https://dynamodb.us-east-1.amazonaws.com/", {"x-amz-target": "DynamoDB_20120810.ListTables", "content-type": "application/x-amz-json-1.0"}, b"{}"),
    ("execute-api", "GET", "https://x.execute-api.us-east-1.amazonaws.com/a%20b/c:d?b=2&a=1&a=0&empty=&flag", {}, b""),
    ("iam", "POST", "https://iam.amazonaws.com/", {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}, b"Action=ListUsers&Version=2010-05-08"),
]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW

    @classmethod
    def utcnow(cls):
        return NOW.replace(tzinfo=None)


def signed(token, kind, service, method, url, headers, body):
    region = "us-east-1" if service != "s3" else "eu-west-1"
    credentials = Credentials(ID, KEY, token)
    request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
    request.context["payload_signing_enabled"] = headers.get("x-amz-content-sha256") != "UNSIGNED-PAYLOAD"
    classes = {
        ("header", True): auth.S3SigV4Auth,
        ("header", False): auth.SigV4Auth,
        ("query", True): auth.S3SigV4QueryAuth,
        ("query", False): auth.SigV4QueryAuth,
    }
    signer = classes[kind, service == "s3"](credentials, service, region)
    signer.add_auth(request)
    prepared = request.prepare()
    return {
        "kind": kind, "token": token, "service": service, "method": method,
        "url": prepared.url if kind == "query" else url,
        "headers": [[name.lower(), value] for name, value in request.headers.items()],
        "body": body.decode(),
    }


patches = [unittest.mock.patch("datetime.datetime", Clock)]
for name in ("get_current_datetime",):
    for module in ("botocore.auth", "botocore.compat"):
        try:
            patches.append(unittest.mock.patch(
                f"{module}.{name}", lambda remove_tzinfo=True: NOW.replace(tzinfo=None) if remove_tzinfo else NOW))
            patches[-1].start()
        except AttributeError:
            patches.pop()
vectors = [signed(token, kind, *case) for case in CASES for token in (None, TOKEN) for kind in ("header", "query") if kind == "header" or case[1] == "GET"]
print(json.dumps({"botocore": botocore.__version__, "id": ID, "key": KEY, "vectors": vectors}, indent=1))
