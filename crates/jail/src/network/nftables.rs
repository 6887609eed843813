//! The part of nftables that the jail's rules need, spoken over nfnetlink.
//!
//! A ruleset is data: chains of rules, rules of expressions. `install` writes it as one batch, which the kernel
//! applies whole or not at all.

use rustix::net::netlink::NETFILTER;

use super::NetworkError;
use super::netlink::Socket;
use super::wire::{ACK, APPEND, Attributes, CREATE, EXCL, Messages};

const SUBSYSTEM: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;
const FAMILY_INET: u8 = 1;
/// All chains here watch packets made by the namespace's own processes: there is no other device to come from.
const HOOK_LOCAL_OUT: u32 = 3;

const TABLE: &str = "sandstorm";

const VERDICT_REGISTER: u32 = 0;
/// The one register that every rule computes in.
const REGISTER: u32 = 1;

#[derive(Debug)]
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) priority: i32,
    pub(super) policy: Verdict,
    pub(super) rules: Vec<Vec<Expression>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Drop = 0,
    Accept = 1,
}

/// One step of a rule. Steps run in order; the first that does not match ends the rule.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    NetworkFamily(u8),
    TransportProtocol(u8),
    /// Bytes of the network header at an offset equal these.
    NetworkHeader {
        offset: u32,
        value: Vec<u8>,
    },
    /// Bytes of the transport header at an offset equal these.
    TransportHeader {
        offset: u32,
        value: Vec<u8>,
    },
    /// The connection's state has one of these bits.
    ConnectionState(u32),
    /// The connection's status has one of these bits.
    ConnectionStatus(u32),
    /// Packets come faster than this.
    RateOver {
        per_second: u64,
        burst: u32,
    },
    /// More connections than this are alive.
    ConnectionsOver(u32),
    NoTrack,
    Redirect(u16),
    Verdict(Verdict),
}

/// Adds the table with its chains and rules to the calling thread's network namespace.
pub(super) fn install(chains: &[Chain]) -> Result<(), NetworkError> {
    Socket::open(Some(NETFILTER))?.request("install the packet rules", &batch(chains))
}

fn batch(chains: &[Chain]) -> Messages {
    let mut messages = Messages::default();
    messages.message(BATCH_BEGIN, 0, &header(0, SUBSYSTEM), |_| {});
    messages.message(NEW_TABLE, ACK | CREATE | EXCL, &header(FAMILY_INET, 0), |table| {
        table.text(1, TABLE);
    });
    for chain in chains {
        messages.message(NEW_CHAIN, ACK | CREATE | EXCL, &header(FAMILY_INET, 0), |attributes| {
            attributes.text(1, TABLE).text(3, chain.name);
            attributes.nest(4, |hook| {
                hook.u32_be(1, HOOK_LOCAL_OUT).raw(2, &chain.priority.to_be_bytes());
            });
            attributes.u32_be(5, chain.policy as u32).text(7, chain.kind);
        });
        for rule in &chain.rules {
            messages.message(NEW_RULE, ACK | CREATE | APPEND, &header(FAMILY_INET, 0), |attributes| {
                attributes.text(1, TABLE).text(2, chain.name);
                attributes.nest(4, |list| rule.iter().for_each(|expression| expression.write(list)));
            });
        }
    }
    messages.message(BATCH_END, 0, &header(0, SUBSYSTEM), |_| {});
    messages
}

/// struct nfgenmsg: family, version, and the subsystem for the two batch messages.
fn header(family: u8, resource: u16) -> [u8; 4] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

impl Expression {
    fn write(&self, list: &mut Attributes<'_>) {
        match self {
            Self::NetworkFamily(family) => {
                meta(list, 15);
                equals(list, &[*family]);
            }
            Self::TransportProtocol(protocol) => {
                meta(list, 16);
                equals(list, &[*protocol]);
            }
            Self::NetworkHeader { offset, value } => {
                payload(list, 1, *offset, value.len());
                equals(list, value);
            }
            Self::TransportHeader { offset, value } => {
                payload(list, 2, *offset, value.len());
                equals(list, value);
            }
            Self::ConnectionState(bits) => connection(list, 0, *bits),
            Self::ConnectionStatus(bits) => connection(list, 2, *bits),
            Self::RateOver { per_second, burst } => element(list, "limit", |limit| {
                // Unit one second, counted in packets, inverted: the rule matches what is over the rate.
                limit.u64_be(1, *per_second).u64_be(2, 1).u32_be(3, *burst).u32_be(4, 0).u32_be(5, 1);
            }),
            Self::ConnectionsOver(count) => element(list, "connlimit", |limit| {
                limit.u32_be(1, *count).u32_be(2, 1);
            }),
            Self::NoTrack => element(list, "notrack", |_| {}),
            Self::Redirect(port) => {
                element(list, "immediate", |load| {
                    load.u32_be(1, REGISTER).nest(2, |data| {
                        data.raw(1, &port.to_be_bytes());
                    });
                });
                element(list, "redir", |redirect| {
                    redirect.u32_be(1, REGISTER);
                });
            }
            Self::Verdict(verdict) => element(list, "immediate", |load| {
                load.u32_be(1, VERDICT_REGISTER).nest(2, |data| {
                    data.nest(2, |code| {
                        code.u32_be(1, *verdict as u32);
                    });
                });
            }),
        }
    }
}

fn element(list: &mut Attributes<'_>, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
    list.nest(1, |expression| {
        expression.text(1, name).nest(2, data);
    });
}

fn meta(list: &mut Attributes<'_>, key: u32) {
    element(list, "meta", |meta| {
        meta.u32_be(1, REGISTER).u32_be(2, key);
    });
}

fn payload(list: &mut Attributes<'_>, base: u32, offset: u32, length: usize) {
    let length = u32::try_from(length).expect("a header field is a few bytes");
    element(list, "payload", |payload| {
        payload.u32_be(1, REGISTER).u32_be(2, base).u32_be(3, offset).u32_be(4, length);
    });
}

fn equals(list: &mut Attributes<'_>, value: &[u8]) {
    compare(list, 0, value);
}

fn compare(list: &mut Attributes<'_>, operator: u32, value: &[u8]) {
    element(list, "cmp", |compare| {
        compare.u32_be(1, REGISTER).u32_be(2, operator).nest(3, |data| {
            data.raw(1, value);
        });
    });
}

/// Loads a word of the connection's tracking entry and matches when it shares a bit with `bits`. The kernel keeps
/// these words in its own byte order.
fn connection(list: &mut Attributes<'_>, key: u32, bits: u32) {
    element(list, "ct", |ct| {
        ct.u32_be(1, REGISTER).u32_be(2, key);
    });
    element(list, "bitwise", |bitwise| {
        bitwise.u32_be(1, REGISTER).u32_be(2, REGISTER).u32_be(3, 4);
        bitwise.nest(4, |mask| {
            mask.raw(1, &bits.to_ne_bytes());
        });
        bitwise.nest(5, |xor| {
            xor.raw(1, &[0; 4]);
        });
    });
    compare(list, 1, &[0; 4]);
}
