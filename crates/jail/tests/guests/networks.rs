//! Networks with nothing but loopback: given on when nothing happened in them, and only then.

use crate::Case;
use crate::host::Host;

pub(crate) const CASES: &[Case] = &[
    ("a network in which nothing happened serves the next jail", untouched),
    ("a network that was used is not given on", used),
    ("jails that live at the same time have networks of their own", apart),
    ("nobody in a jail has rights over its network", no_rights),
];

/// Which network it is, and what can be seen of its past.
const LOOK: &str = "import os\n\
                    print(os.readlink('/proc/self/ns/net'))\n\
                    print(open('/proc/net/dev').read(), open('/proc/net/snmp').read())\n";

fn look(host: &mut Host, name: &str) -> (String, String) {
    let ran = host.python(name, None, LOOK);
    let (network, past) = ran.stdout.split_once('\n').unwrap();
    (network.to_owned(), past.to_owned())
}

fn after(host: &mut Host, code: &str) -> ((String, String), (String, String)) {
    host.launch("first");
    let before = look(host, "first");
    host.python("first", None, code);
    host.kill("first");
    host.launch("second");
    let found = look(host, "second");
    (before, found)
}

fn untouched(host: &mut Host) {
    let (before, found) = after(host, "print('nothing')\n");
    assert_eq!(before, found);
}

fn used(host: &mut Host) {
    // A conversation; one that could not be sent; a name that could not be found; a socket that was only open.
    let programs = [
        "import socket\n\
         server = socket.create_server(('127.0.0.1', 0))\n\
         client = socket.create_connection(server.getsockname())\n\
         client.sendall(b'x' * 100)\n",
        "import socket\nsocket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))\n",
        "import socket\nsocket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'x', ('::1', 9))\n",
        "import socket\nsocket.socket().connect_ex(('192.0.2.1', 80))\n",
    ];
    let mut fresh = None;
    for program in programs {
        let (before, found) = after(host, program);
        assert_ne!(before.0, found.0, "{program}");
        // Whatever comes after looks as if nothing had ever happened.
        assert_eq!(fresh.get_or_insert(before.1.clone()), &found.1, "{program}");
        host.kill("second");
    }
}

fn apart(host: &mut Host) {
    let names: Vec<String> = (0..4).map(|i| format!("apart-{i}")).collect();
    let mut networks = Vec::new();
    for name in &names {
        host.launch(name);
        networks.push(look(host, name).0);
    }
    networks.sort_unstable();
    networks.dedup();
    assert_eq!(networks.len(), names.len());
}

fn no_rights(host: &mut Host) {
    host.launch("rights");
    // Takes `lo` down by the old call, and adds a device by the new one.
    let code = "import fcntl, socket, struct\n\
                probe = socket.socket(type=socket.SOCK_DGRAM)\n\
                try: fcntl.ioctl(probe, 0x8914, struct.pack('16sH14s', b'lo', 0, b''))\n\
                except OSError as error: print(error.strerror)\n\
                try: open('/proc/sys/net/ipv4/ip_forward', 'w')\n\
                except OSError as error: print(error.strerror)\n\
                try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                except OSError as error: print(error.strerror)\n";
    let guest = host.guest("rights", "owner");
    for ran in [host.python("rights", None, code), host.python("rights", Some(guest), code)] {
        let answers: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(answers.len(), 3, "{} {}", ran.stdout, ran.stderr);
        assert_eq!(answers[0], "Operation not permitted");
        assert!(ran.stderr.is_empty(), "{}", ran.stderr);
    }
}
