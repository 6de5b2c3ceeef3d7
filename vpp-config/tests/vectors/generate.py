#!/usr/bin/env python3
"""Writes messages with FD.io's own encoder, for the tests to compare with.

    pip install vpp-papi
    generate.py FOLDER

FOLDER has the *.api.json files of a VPP, in any depth; an installed VPP has them under
share/vpp/api. Written beside this script: crcs.tsv (name, CRC) and messages.tsv (name, role, the
whole message in hexadecimal, what it says as JSON), for every message that the crate declares.
"""

import ipaddress
import json
import pathlib
import random
import re
import sys

from vpp_papi.vpp_papi import VPPApiJSONFiles

HERE = pathlib.Path(__file__).parent
HEADER = {"_vl_msg_id": 0x1234, "client_index": 0x80000001, "context": 0x01020304}

types, enums, flags, aliases, messages, services = {}, {}, set(), {}, {}, {}
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.api.json")):
    api = json.loads(file.read_text())
    types |= {t[0]: t[1:] for t in api["types"]}
    enums |= {e[0]: e[1:] for e in api["enums"] + api["enumflags"]}
    flags |= {e[0] for e in api["enumflags"]}
    aliases |= api["aliases"]
    messages |= {m[0]: m[1:] for m in api["messages"]}
    services |= api["services"]

packers = {}
for file in sorted(pathlib.Path(sys.argv[1]).rglob("*.api.json")):
    # A file may use types of one that comes later; a second pass finds them.
    for _ in range(2):
        try:
            parsed, _ = VPPApiJSONFiles.process_json_file(file.open())
            packers |= parsed
            break
        except Exception:
            pass

BITS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64, "i16": -16, "i32": -32}


def bare(name):
    return name.removeprefix("vl_api_").removesuffix("_t") if name.startswith("vl_api_") else name


def integer(rng, bits):
    signed, bits = bits < 0, abs(bits)
    value = rng.choice([0, 1, (1 << bits) - 1, rng.getrandbits(bits), rng.getrandbits(bits)])
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def text(rng, most):
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_./"
    return "".join(rng.choice(letters) for _ in range(rng.randint(0, most)))


def address(rng, family):
    size, kind = (4, ipaddress.IPv4Address) if family == 0 else (16, ipaddress.IPv6Address)
    raw = rng.randbytes(size)
    return raw, rust(kind(raw))


def rust(ip):
    """As Rust's standard library writes it."""
    if ip.version == 6 and ip.ipv4_mapped:
        return f"::ffff:{ip.ipv4_mapped}"
    return str(ip)


def prefix(rng, family, member):
    """The value for the encoder, and as this crate shows it."""
    raw, shown = address(rng, family)
    length = rng.randint(0, 32 if family == 0 else 128)
    inner = {"af": family, "un": {f"ip{4 if family == 0 else 6}": raw}} if member else raw
    return {"address": inner, "len": length}, f"{shown}/{length}"


def value(rng, name):
    """A value for the encoder, and as this crate shows it."""
    name = bare(name)
    if name in ("prefix", "address_with_prefix"):
        return prefix(rng, rng.randint(0, 1), True)
    if name in ("ip4_prefix", "ip4_address_with_prefix"):
        return prefix(rng, 0, False)
    if name in ("ip6_prefix", "ip6_address_with_prefix"):
        return prefix(rng, 1, False)
    if name == "address":
        family = rng.randint(0, 1)
        raw, shown = address(rng, family)
        return {"af": family, "un": {f"ip{4 if family == 0 else 6}": raw}}, shown
    if name == "address_union":
        raw, shown = address(rng, 1)
        return {"ip6": raw}, shown
    if name == "ip4_address":
        return address(rng, 0)
    if name == "ip6_address":
        return address(rng, 1)
    if name == "mac_address":
        raw = rng.randbytes(6)
        return raw, ":".join(f"{byte:02x}" for byte in raw)
    if name == "punt":
        kind = rng.randint(0, 2)
        member = ["l4", "ip_proto", "exception"][kind]
        packed, shown = structure(rng, types[f"punt_{member}"])
        variant = ["L4", "IpProto", "Exception"][kind]
        return {"type": kind, "punt": {member: packed}}, {variant: shown}
    if name == "fib_path":
        packed, shown = structure(rng, types[name])
        count = rng.randint(0, 16)
        for label in packed["label_stack"][count:]:
            label.update(dict.fromkeys(label, 0))
        packed["n_labels"] = count
        del shown["n_labels"]
        shown["labels"] = shown.pop("label_stack")[:count]
        return packed, shown
    if name == "srv6_sid_list":
        packed, shown = structure(rng, types[name])
        count = rng.randint(0, 16)
        packed["num_sids"] = count
        packed["sids"] = packed["sids"][:count] + [bytes(16)] * (16 - count)
        return packed, {"weight": shown["weight"], "sids": shown["sids"][:count]}
    if name in BITS:
        number = integer(rng, BITS[name])
        return number, number
    if name == "bool":
        truth = rng.random() < 0.5
        return truth, truth
    if name == "f64":
        number = rng.getrandbits(20) / 8
        return number, number
    if name in enums:
        members = [m[1] for m in enums[name] if isinstance(m, list)]
        number = rng.choice(members)
        if name in flags:
            for member in members:
                number |= member if rng.random() < 0.4 else 0
        return number, number
    if name in aliases:
        return value(rng, aliases[name]["type"])
    return structure(rng, types[name])


def structure(rng, fields, skip=()):
    packed, shown = {}, {}
    fields = [f for f in fields if isinstance(f, list)]
    counts = {f[3] for f in fields if len(f) > 3 and not isinstance(f[3], dict)}
    arrays = {}
    for field in fields:
        kind, name = field[:2]
        size = [part for part in field[2:] if not isinstance(part, dict)]
        if name in skip:
            packed[name] = skip[name]
        elif kind == "string":
            fixed = size[0] if size else 0
            packed[name] = shown[name] = text(rng, min(fixed - 1, 40) if fixed else 40)
        elif len(size) == 2:
            elements = [value(rng, kind) for _ in range(rng.randint(0, 3))]
            packed[name] = [element for element, _ in elements]
            shown[name] = [element for _, element in elements]
            arrays[size[1]] = len(elements)
            if kind == "u8":
                packed[name] = bytes(packed[name])
        elif size and size[0]:
            elements = [value(rng, kind) for _ in range(size[0])]
            packed[name] = [element for element, _ in elements]
            shown[name] = [element for _, element in elements]
            if name == "mtu":
                shown[name] = dict(zip(("l3", "ip4", "ip6", "mpls"), shown[name]))
        elif name not in counts:
            packed[name], shown[name] = value(rng, kind)
    return packed | arrays, shown


def role(name):
    for request, service in services.items():
        stream = "stream" in service
        if name == request:
            return ("get" if "stream_msg" in service else "dump") if stream else "request"
        if name == service.get("stream_msg"):
            return "details"
        if name == service["reply"]:
            return "details" if stream and "stream_msg" not in service else "reply"
        if name in service.get("events", []):
            return "event"
    raise SystemExit(f"{name} belongs to no service")


def declared():
    files = sorted((HERE / "../../src/messages").glob("*.rs"))
    source = "\n".join(f.read_text() for f in files if f.name != "declare.rs")
    names = set(re.findall(r'\w\(\s*"([a-z][a-z0-9_]+)",\s*0x', source))
    for name in sorted(names):
        yield name
        service = services.get(name, {})
        for answer in (service.get("reply"), service.get("stream_msg")):
            if answer and answer != "null" and answer not in names:
                yield answer
    yield from ("sockclnt_create", "sockclnt_create_reply")


crcs, lines = set(), set()
for name in declared():
    if name not in messages:
        raise SystemExit(f"{name} is not defined in {sys.argv[1]}")
    crcs.add(f"{name}\t{messages[name][-1]['crc'][2:]}")
    for seed in range(2):
        rng = random.Random(f"{name} {seed}")
        kind = "handshake" if name.startswith("sockclnt_create") else role(name)
        skip = {"_vl_msg_id": HEADER["_vl_msg_id"]}
        if kind != "handshake":
            skip |= HEADER
        if kind == "reply":
            skip["retval"] = 0
            # In this one it is a field, and comes after the return value.
            if name == "control_ping_reply":
                del skip["client_index"]
        if kind == "get":
            skip["cursor"] = 7
        packed, shown = structure(rng, messages[name], skip)
        raw = packers[name].pack(packed)
        shown = json.dumps(shown, sort_keys=True, separators=(",", ":"))
        lines.add(f"{name}\t{kind}\t{raw.hex()}\t{shown}")

(HERE / "crcs.tsv").write_text("\n".join(sorted(crcs)) + "\n")
(HERE / "messages.tsv").write_text("\n".join(sorted(lines)) + "\n")
