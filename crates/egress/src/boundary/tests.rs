use super::*;
use crate::testing::FakeResolver;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn resolver(answers: &[&str]) -> Arc<FakeResolver> {
    let resolver = FakeResolver::default();
    let answers = answers.iter().map(|text| ip(text)).collect();
    resolver.answers.lock().unwrap().insert(KNOWN_NAME.to_owned(), answers);
    Arc::new(resolver)
}

fn boundary(denied: &[&str], configured: &[&str], resolver: &Arc<FakeResolver>) -> Boundary {
    let denied = denied.iter().map(|text| text.parse().unwrap()).collect();
    let configured = configured.iter().map(|text| text.parse().unwrap()).collect();
    Boundary::new(denied, configured, Arc::clone(resolver) as Arc<dyn Resolver>)
}

#[test]
fn what_the_operator_denies_is_out_of_reach() {
    let boundary = boundary(&["93.184.216.0/24", "2a00:5::/32"], &["2a00:64::/96"], &resolver(&[]));
    for denied in ["93.184.216.34", "::ffff:93.184.216.34", "2a00:5::1", "2a00:64::5db8:d822"] {
        assert_eq!(boundary.check(ip(denied)), Err(Refusal::DeniedAddress), "{denied}");
    }
    for free in ["93.184.217.34", "2a00:6::1", "2a00:64::808:808"] {
        assert_eq!(boundary.check(ip(free)), Ok(()), "{free}");
    }
}

/// The network's own prefix is not known from its form: only its name server or its operator tells it.
#[tokio::test]
async fn a_translated_address_is_judged_by_what_it_stands_for() {
    let inside = ["a00:1", "7f00:1", "a9fe:a9fe", "a83f:8110", "6440:1"];
    let forbidden = |boundary: &Boundary, network: &str| {
        inside.iter().filter(|host| boundary.check(ip(&format!("{network}::{host}"))).is_err()).count()
    };
    let unaware = boundary(&[], &[], &resolver(&["192.0.0.170", "192.0.0.171"]));
    unaware.learn().await;
    assert_eq!(forbidden(&unaware, "2a00:64"), 0, "these look public to those who know nothing");

    let told = boundary(&[], &["2a00:64::/96"], &resolver(&[]));
    let asks = boundary(&[], &[], &resolver(&["2a00:64::c000:aa", "2a00:64::c000:ab", "192.0.0.170"]));
    asks.learn().await;
    for boundary in [&told, &asks] {
        assert_eq!(forbidden(boundary, "2a00:64"), inside.len());
        assert_eq!(boundary.check(ip("2a00:64::808:808")), Ok(()));
        assert_eq!(boundary.check(ip("2a00:65::a00:1")), Ok(()), "another network");
    }
}

#[tokio::test]
async fn prefixes_of_every_length_are_found() {
    for (answer, inside, outside) in [
        ("2a00:64:c000:aa::", "2a00:64:a00:1::", "2a00:64:808:808::"),
        ("2a00:64:1c0:0:aa::", "2a00:64:10a:0:1::", "2a00:64:108:808:8::"),
        ("2a00:64:1:c000:0:aa00::", "2a00:64:1:a00:0:100::", "2a00:64:1:808:8:800::"),
        ("2a00:64:1:2c0:0:aa::", "2a00:64:1:20a:0:1::", "2a00:64:1:208:8:808::"),
        ("2a00:64:1:2:c0:0:aa00::", "2a00:64:1:2:a:0:100::", "2a00:64:1:2:8:808:800::"),
    ] {
        let boundary = boundary(&[], &[], &resolver(&[answer]));
        boundary.learn().await;
        assert_eq!(boundary.check(ip(inside)), Err(Refusal::ForbiddenAddress), "{answer} {inside}");
        assert_eq!(boundary.check(ip(outside)), Ok(()), "{answer} {outside}");
    }
}

#[tokio::test]
async fn the_blocks_for_translation_are_closed_until_this_network_uses_them() {
    let translated = ["64:ff9b::808:808", "64:ff9b:1:2::808:808"];
    let unaware = boundary(&[], &[], &resolver(&["192.0.0.170"]));
    let aware = boundary(&[], &[], &resolver(&["64:ff9b::c000:aa", "64:ff9b:1:2::c000:aa"]));
    aware.learn().await;
    for address in translated {
        assert_eq!(unaware.check(ip(address)), Err(Refusal::ForbiddenAddress), "{address}");
        assert_eq!(aware.check(ip(address)), Ok(()), "{address}");
    }
    for address in ["64:ff9b::a00:1", "64:ff9b:1:2::a9fe:a9fe"] {
        assert_eq!(aware.check(ip(address)), Err(Refusal::ForbiddenAddress), "{address}");
    }
}

#[tokio::test]
async fn a_name_server_opens_nothing_that_is_not_public() {
    let lies = boundary(&[], &[], &resolver(&["fd00:64::c000:aa", "fe80::c000:aa", "2002:a00:1::c000:aa"]));
    lies.learn().await;
    for address in ["fd00:64::808:808", "fe80::808:808", "2002:a00:1::808:808"] {
        assert_eq!(lies.check(ip(address)), Err(Refusal::ForbiddenAddress), "{address}");
    }
    let told = boundary(&[], &["fd00:64::/96"], &resolver(&[]));
    assert_eq!(told.check(ip("fd00:64::808:808")), Ok(()), "the operator's word counts");
}

#[tokio::test(start_paused = true)]
async fn the_name_is_asked_for_now_and_then_and_an_answer_outlives_silence() {
    let resolver = resolver(&["2a00:64::c000:aa"]);
    let boundary = boundary(&[], &[], &resolver);
    for _ in 0..3 {
        boundary.learn().await;
    }
    assert_eq!(resolver.asked.lock().unwrap().len(), 1);
    resolver.answers.lock().unwrap().clear();
    tokio::time::advance(HOLDS).await;
    boundary.learn().await;
    assert_eq!(resolver.asked.lock().unwrap().len(), 2);
    assert!(boundary.check(ip("2a00:64::a00:1")).is_err(), "nobody said that it is over");
    tokio::time::advance(AGAIN).await;
    boundary.learn().await;
    assert_eq!(resolver.asked.lock().unwrap().len(), 3);
}

/// A name server that loses its word for a while must not open what lies behind the translator.
#[tokio::test(start_paused = true)]
async fn a_prefix_is_known_until_several_answers_lack_it() {
    let resolver = resolver(&["2a00:64::c000:aa"]);
    let boundary = boundary(&[], &[], &resolver);
    boundary.learn().await;
    let answer = |answers: &[&str]| {
        let answers = answers.iter().map(|text| ip(text)).collect();
        resolver.answers.lock().unwrap().insert(KNOWN_NAME.to_owned(), answers);
    };
    for answers in [&["192.0.0.170"][..], &["2a00:65::c000:aa"], &["2a00:64::c000:aa"], &[], &["192.0.0.170"]]
    {
        answer(answers);
        tokio::time::advance(HOLDS).await;
        boundary.learn().await;
        assert!(boundary.check(ip("2a00:64::a00:1")).is_err(), "{answers:?}");
    }
    tokio::time::advance(HOLDS).await;
    boundary.learn().await;
    assert_eq!(boundary.check(ip("2a00:64::a00:1")), Ok(()), "three answers in a row lack it");
}
