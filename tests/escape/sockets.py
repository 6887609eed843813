# Sockets of the host and of odd families. Arguments: an abstract name, a path and a TCP port that the host listens on.
import socket
import sys

abstract, path, port = sys.argv[1], sys.argv[2], int(sys.argv[3])


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(3)
        client.connect(address)
        return client.recv(100)


refused("abstract socket of the host", lambda: connect(socket.AF_UNIX, b"\0" + abstract.encode()), "ECONNREFUSED", "EPERM")
refused("socket of the host by path", lambda: connect(socket.AF_UNIX, path), "ENOENT")
for well_known in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
                   "/run/sandstorm", "/run/containerd/containerd.sock"):
    refused(well_known, lambda: connect(socket.AF_UNIX, well_known), "ENOENT")
refused("loopback of the host", lambda: connect(socket.AF_INET, ("127.0.0.1", port)), "ECONNREFUSED")
refused("loopback of the host, IPv6", lambda: connect(socket.AF_INET6, ("::1", port)), "ECONNREFUSED", "EADDRNOTAVAIL")
for address in ("10.0.0.1", "172.17.0.1", "192.168.0.1", "169.254.169.254", "198.51.100.1", "8.8.8.8"):
    refused(address, lambda: connect(socket.AF_INET, (address, 80)), "ENETUNREACH")
for address in ("fd00::1", "2001:db8::1", "fe80::1"):
    refused(address, lambda: connect(socket.AF_INET6, (address, 80)), "ENETUNREACH", "EADDRNOTAVAIL", "EINVAL")


def datagram(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        return client.sendto(b"x", (address, 53))


for address in ("8.8.8.8", "169.254.169.254", "255.255.255.255", "224.0.0.1"):
    refused(f"datagram to {address}", lambda: datagram(address), "ENETUNREACH", "EACCES", "EPERM")
check("interfaces", [name for _, name in socket.if_nameindex()], ["lo"])

# Netlink beyond routes, packets, crypto, virtual machines, Bluetooth, CAN, TIPC, XDP, keys and whatever else there is.
ALLOWED = {1, 2, 10, 16}
for family in range(0, 64):
    if family not in ALLOWED:
        for kind in (1, 2, 3, 5):
            refused(f"family {family}, type {kind}", lambda: socket.socket(family, kind, 0).close(), "EAFNOSUPPORT", "EPERM")
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in (socket.SOCK_RAW, 10, socket.SOCK_RAW | socket.SOCK_CLOEXEC):
        for protocol in (1, 58, 255):
            refused(f"raw {family} {kind} {protocol}", lambda: socket.socket(family, kind, protocol), "EPERM")
    refused("SCTP", lambda: socket.socket(family, socket.SOCK_STREAM, 132), "EPERM", "EPROTONOSUPPORT")
for protocol in range(1, 24):
    refused(f"netlink {protocol}", lambda: socket.socket(16, socket.SOCK_RAW, protocol), "EPERM", "EPROTONOSUPPORT", "EAFNOSUPPORT")
done()
