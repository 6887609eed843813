//! The name that was matched is the name that is looked up, byte for byte.

use proptest::prelude::*;

use super::*;
use crate::dns::{answer, query};
use crate::names::Names;

const RULES: [&str; 2] = ["allowed.example:8080", "*.below.example:8080"];

/// Asks for a name as a program would, connects to what it is told, and returns which names were looked up outside.
async fn looked_up(labels: &[&[u8]]) -> Vec<String> {
    let (world, _server) = world(allow(&RULES)).await;
    let reply = answer(&world.shared, &query(labels, 1)).unwrap();
    let Some(&address) = reply.last_chunk::<4>().filter(|_| reply[7] == 1) else {
        assert_silent(&world);
        return Vec::new();
    };
    assert!(Names::is_synthetic(address.into()));
    // The name leads nowhere, which is all the same here.
    refused(&world, (address, 8080).into(), &[b"\0"], Refusal::Unresolved).await;
    world.asked()
}

/// Spelled as in a rule, whatever the case; every other spelling that some parser takes for the same is refused.
#[tokio::test]
async fn a_corpus_of_names_is_looked_up_as_it_was_matched_or_not_at_all() {
    for (labels, expected) in [
        (&[&b"allowed"[..], b"example"][..], Some("allowed.example.")),
        (&[b"ALLOWED", b"Example"], Some("allowed.example.")),
        (&[b"x", b"below", b"example"], Some("x.below.example.")),
        (&[b"a", b"b", b"below", b"example"], Some("a.b.below.example.")),
        (&[b"xn--bcher-kva", b"below", b"example"], Some("xn--bcher-kva.below.example.")),
        (&[b"_x-y", b"below", b"example"], Some("_x-y.below.example.")),
        (&[b"below", b"example"], None),
        (&[b"evilbelow", b"example"], None),
        (&[b"x", b"allowed", b"example"], None),
        (&[b"allowed", b"example", b"evil"], None),
        (&[b"evil\0", b"below", b"example"], None),
        (&[b"evil.example\0", b"below", b"example"], None),
        (&[b"evil.example", b"below", b"example"], None),
        (&[b"evil%00", b"below", b"example"], None),
        (&[b"user@evil", b"below", b"example"], None),
        (&[b"evil/", b"below", b"example"], None),
        (&[b"evil\\", b"below", b"example"], None),
        (&[b"[evil]", b"below", b"example"], None),
        (&[b"evil ", b"below", b"example"], None),
        (&[b"evil\r\n", b"below", b"example"], None),
        (&[b"b\xc3\xbccher", b"below", b"example"], None),
        (&[b"*", b"below", b"example"], None),
        (&[b"127", b"0", b"0", b"1"], None),
    ] {
        let expected: Vec<String> = expected.map(str::to_owned).into_iter().collect();
        assert_eq!(looked_up(labels).await, expected, "{:?}", labels.concat().escape_ascii().to_string());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn matched_means_looked_up_equal(
        front in prop::collection::vec(prop::collection::vec(prop_oneof![
            prop::char::range('a', 'z').prop_map(|letter| letter as u8), Just(b'.'), Just(0), any::<u8>(),
        ], 1..8), 0..3),
        base in prop::sample::select(vec!["allowed.example", "below.example", "BELOW.eXample"]),
    ) {
        let mut labels: Vec<&[u8]> = front.iter().map(Vec::as_slice).collect();
        labels.extend(base.split('.').map(str::as_bytes));
        let spelled = labels.join(&b'.').to_ascii_lowercase();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if let [asked] = &runtime.block_on(looked_up(&labels))[..] {
            let policy = allow(&RULES);
            let name: HostName = asked.parse().unwrap();
            prop_assert_eq!(asked.as_bytes(), &[&spelled[..], b"."].concat());
            prop_assert!(policy.allows_host(&name, 8080));
        }
    }
}
