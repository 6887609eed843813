use proptest::prelude::*;

use super::*;

fn policy(rules: &[&str]) -> NetworkPolicy {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    NetworkPolicy::Allow(AllowList::new(rules).unwrap())
}

fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

#[test]
fn a_list_lets_through_only_what_it_names() {
    let policy = policy(&["example.com", "*.pkg.example.net:8443"]);
    assert!(policy.allows_host(&name("example.com"), 443));
    assert!(policy.allows_host(&name("EXAMPLE.com."), 80));
    assert!(policy.allows_host(&name("a.b.pkg.example.net"), 8443));
    for (host, port) in [
        ("example.com", 22),
        ("a.example.com", 443),
        ("evilexample.com", 443),
        ("pkg.example.net", 8443),
        ("a.pkg.example.net", 443),
    ] {
        assert!(!policy.allows_host(&name(host), port), "{host}:{port}");
    }
    assert!(!policy.allows_ip("93.184.216.34".parse().unwrap(), 443));
}

#[test]
fn names_that_no_rule_mentions_are_not_even_resolved() {
    let policy = policy(&["example.com:8080", "ip:192.0.2.1"]);
    assert!(policy.resolves(&name("example.com")));
    assert!(!policy.resolves(&name("secret.example.com")));
    assert!(!NetworkPolicy::None.resolves(&name("example.com")));
    assert!(NetworkPolicy::Open.resolves(&name("example.com")));
}

#[test]
fn an_address_needs_a_rule_of_its_own() {
    assert!(matches!(
        "192.0.2.1".parse::<Rule>(),
        Err(NetworkPolicyError::Host { source: HostNameError::IpAddress, .. })
    ));
    assert!("[2001:db8::1]:443".parse::<Rule>().is_err());
    assert!("2001:db8::1".parse::<Rule>().is_err());
    let policy = policy(&["ip:192.0.2.1:22", "ip:[2001:db8::1]"]);
    assert!(policy.allows_ip("192.0.2.1".parse().unwrap(), 22));
    assert!(policy.allows_ip("::ffff:192.0.2.1".parse().unwrap(), 22));
    assert!(policy.allows_ip("2001:db8::1".parse().unwrap(), 443));
    assert!(!policy.allows_ip("192.0.2.2".parse().unwrap(), 22));
    assert!(!policy.allows_ip("192.0.2.1".parse().unwrap(), 443));
}

#[test]
fn a_network_is_a_rule_for_all_its_addresses() {
    let policy = policy(&["ip:198.51.100.0/24:22", "ip:[2001:db8::/32]"]);
    assert!(policy.allows_ip("198.51.100.9".parse().unwrap(), 22));
    assert!(policy.allows_ip("2001:db8:7::1".parse().unwrap(), 443));
    for (address, port) in [("198.51.100.9", 443), ("198.51.101.1", 22), ("2001:db9::1", 443)] {
        assert!(!policy.allows_ip(address.parse().unwrap(), port), "{address}:{port}");
    }
    assert!(!policy.resolves(&name("example.com")));
    for text in
        ["ip:198.51.100.1/24", "ip:[198.51.100.0/24]", "ip:2001:db8::/32", "198.51.100.0/24", "ip:1.2.3.4/33"]
    {
        assert!(text.parse::<Rule>().is_err(), "{text}");
    }
    assert_eq!("ip:[2001:db8::/32]:7".parse::<Rule>().unwrap().to_string(), "ip:[2001:db8::/32]:7");
}

#[test]
fn refuses_odd_rules() {
    for text in [
        "",
        ":443",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+1",
        "example.com:443,",
        "example.com:https",
        "example.com: 443",
        "http://example.com",
        "user@example.com",
        "exa%6dple.com",
        "attacker.com\0.example.com",
        "ip:",
        "ip:127.1",
        "ip:0x7f000001",
        "ip:2001:db8::1",
        "ip:[::1",
        "ip:[::1]443",
        "ip:[127.0.0.1]",
        "ip:fe80::1%eth0",
        "ip:[fe80::1%eth0]",
        "ip:example.com",
    ] {
        assert!(text.parse::<Rule>().is_err(), "{text:?}");
    }
    let many = format!("example.com:{}", (1..100).map(|port| port.to_string()).collect::<Vec<_>>().join(","));
    assert!(many.parse::<Rule>().is_err());
}

#[test]
fn json_forms() {
    assert_eq!(serde_json::from_str::<NetworkPolicy>("\"none\"").unwrap(), NetworkPolicy::None);
    assert_eq!(serde_json::from_str::<NetworkPolicy>("\"open\"").unwrap(), NetworkPolicy::Open);
    let list = serde_json::from_str::<NetworkPolicy>(r#"{"allow": ["example.com"]}"#).unwrap();
    assert_eq!(list, policy(&["example.com:80,443"]));
    let error = serde_json::from_str::<NetworkPolicy>(r#"{"allow": ["*.com"]}"#).unwrap_err().to_string();
    assert!(error.contains("`*.com`") && error.contains("two labels"), "{error}");
    let many = serde_json::to_string(&vec!["example.com"; 1025]).unwrap();
    assert!(serde_json::from_str::<NetworkPolicy>(&format!("{{\"allow\": {many}}}")).is_err());
}

#[test]
fn no_text_makes_a_rule_internal() {
    let rule = "ip:127.0.0.1:3141".parse::<Rule>().unwrap();
    assert!(!rule.is_internal());
    let internal = rule.clone().internal();
    assert!(internal.is_internal());
    let back: Rule = serde_json::from_str(&serde_json::to_string(&internal).unwrap()).unwrap();
    assert!(!back.is_internal());
    let list = |rule| NetworkPolicy::Allow(AllowList::new(vec![rule]).unwrap()).canonical();
    assert_ne!(list(rule), list(internal));
}

#[test]
fn canonical_text_does_not_depend_on_order() {
    assert_eq!(
        policy(&["b.example", "a.example"]).canonical(),
        policy(&["A.example.:443,80", "b.example"]).canonical()
    );
    assert_ne!(policy(&[]).canonical(), NetworkPolicy::None.canonical());
}

proptest! {
    #[test]
    fn rules_print_what_they_read(text in "(ip:)?(\\*\\.)?[a-z0-9.\\[\\]:/-]{1,30}(:[0-9]{1,5}(,[0-9]{1,5})?)?") {
        if let Ok(rule) = text.parse::<Rule>() {
            prop_assert_eq!(rule.to_string().parse::<Rule>(), Ok(rule));
        }
    }

    #[test]
    fn a_host_that_passes_is_one_that_the_list_spells(host in "[a-z]{1,3}(\\.[a-z]{1,3}){1,3}", port in 1u16..1000) {
        let policy = policy(&["a.bc", "*.d.ef:7"]);
        let expected = (host == "a.bc" && (port == 80 || port == 443)) || (host.ends_with(".d.ef") && port == 7);
        prop_assert_eq!(policy.allows_host(&name(&host), port), expected);
    }
}
