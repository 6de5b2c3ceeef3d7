"""The programs that run inside the demo's sandboxes: plain Python, nothing of Causeway's.

  client.py get URL                 GET with the standard library, prints status and body
  client.py serve PORT...           a TCP server on every address that answers "hello from HOSTNAME:PORT"
  client.py tcp ADDRESS PORT        connects, prints what the server says
  client.py udp ADDRESS PORT        sends a datagram to an echo server, prints what comes back
  client.py follow URL FILE         reads an endless response, a line at a time, into FILE
  client.py talk ADDRESS PORT FILE  keeps one TCP connection busy, a line each 20 ms, into FILE
"""
import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            print(json.dumps({"status": reply.status, "body": reply.read().decode()}))
    except urllib.error.HTTPError as error:
        print(json.dumps({"status": error.code, "body": error.read().decode()}))


def serve(*ports):
    def answer(connection, port):
        with connection:
            connection.sendall(f"hello from port {port}\n".encode())
            while data := connection.recv(4096):
                connection.sendall(data)

    def listen(port):
        server = socket.create_server(("::", port), family=socket.AF_INET6, backlog=64)
        ready.release()
        while True:
            connection, _ = server.accept()
            threading.Thread(target=answer, args=(connection, port), daemon=True).start()

    ready = threading.Semaphore(0)
    for port in ports:
        threading.Thread(target=listen, args=(int(port),), daemon=True).start()
    for _ in ports:
        ready.acquire()
    print("ready", flush=True)
    threading.Event().wait()


def tcp(address, port):
    with socket.create_connection((address, int(port)), timeout=1.5) as connection:
        print(connection.recv(4096).decode().strip())


def udp(address, port):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1.5)
        channel.connect((address, int(port)))
        channel.send(b"echo")
        print(channel.recv(4096).decode())


def follow(url, path):
    with urllib.request.urlopen(url, timeout=5) as reply, open(path, "w") as out:
        for line in reply:
            out.write(line.decode())
            out.flush()


def talk(address, port, path):
    with socket.create_connection((address, int(port)), timeout=5) as connection, open(path, "w") as out:
        connection.recv(4096)
        count = 0
        while True:
            sent = time.monotonic()
            connection.sendall(f"{count}\n".encode())
            connection.recv(4096)
            # Sequence number and round trip in milliseconds.
            out.write(f"{count} {(time.monotonic() - sent) * 1000:.1f}\n")
            out.flush()
            count += 1
            time.sleep(0.02)


commands = {f.__name__: f for f in (get, serve, tcp, udp, follow, talk)}
commands[sys.argv[1]](*sys.argv[2:])
