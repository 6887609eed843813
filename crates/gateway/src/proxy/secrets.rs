//! Keeps keys and tokens of ours from programs behind ports.
//!
//! A client that sends its key along with everything would give it to a program that nobody has read. Where a port has a
//! host of its own, `Authorization` and cookies may be the program's own, so only what has the form of a credential of ours
//! is taken away, under whatever name it comes.

use data_encoding::{BASE64, BASE64_NOPAD};
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use sandstorm_control::server::keys::is_credential;

/// Removes headers that carry a credential of ours, and of `Cookie` the cookies that do.
pub(crate) fn strip(headers: &mut HeaderMap) {
    strip_cookies(headers);
    let telling: Vec<HeaderName> = headers
        .iter()
        .filter(|(name, value)| is_telling(name, value))
        .map(|(name, _)| name.clone())
        .collect();
    for name in telling {
        headers.remove(name);
    }
}

fn is_telling(name: &HeaderName, value: &HeaderValue) -> bool {
    let text = String::from_utf8_lossy(value.as_bytes());
    has_credential(&text)
        || (*name == AUTHORIZATION && basic(&text).is_some_and(|pair| has_credential(&pair)))
}

/// User and password of `Basic`, as one text.
fn basic(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(' ')?;
    let rest = rest.trim();
    let bytes = BASE64.decode(rest.as_bytes()).or_else(|_| BASE64_NOPAD.decode(rest.as_bytes())).ok()?;
    scheme.eq_ignore_ascii_case("basic").then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn has_credential(text: &str) -> bool {
    let in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.split(|c| !in_word(c)).any(is_credential)
}

fn strip_cookies(headers: &mut HeaderMap) {
    let sent: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    if !sent.iter().any(|line| has_credential(&String::from_utf8_lossy(line.as_bytes()))) {
        return;
    }
    headers.remove(COOKIE);
    for line in sent {
        let Ok(line) = line.to_str() else { continue };
        let kept: Vec<&str> = line.split(';').map(str::trim).filter(|pair| !has_credential(pair)).collect();
        if let Some(value) =
            (!kept.is_empty()).then(|| HeaderValue::from_str(&kept.join("; ")).ok()).flatten()
        {
            headers.append(COOKIE, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_form_of_a_credential_goes_and_the_rest_stays() {
        let key = format!("ss_abcdefghijklmnop_{}", "A-_9".repeat(10) + "abc");
        let e2b = format!("e2b_{}", "0a".repeat(20));
        let token = format!("{}-abcdefghijklmnop-4e20-{}", "a".repeat(26), "0f".repeat(20));
        for secret in [&key, &e2b, &token] {
            let with_user = BASE64.encode(format!("user:{secret}").as_bytes());
            for (name, value) in [
                ("authorization", format!("Bearer {secret}")),
                ("authorization", format!("Basic {with_user}")),
                ("x-api-key", secret.clone()),
                ("x-access-token", secret.clone()),
                ("x-anything", format!("key=\"{secret}\"")),
                ("cookie", format!("key={secret}")),
            ] {
                let name: HeaderName = name.parse().unwrap();
                let mut sent = HeaderMap::from_iter([(name.clone(), value.parse().unwrap())]);
                strip(&mut sent);
                assert!(sent.is_empty(), "{name}: {value}");
            }
        }
        let mut sent = HeaderMap::new();
        sent.append(COOKIE, format!("a=1; key={key}; b=2").parse().unwrap());
        sent.append(COOKIE, "c=3".parse().unwrap());
        sent.append(AUTHORIZATION, "Bearer of-the-program".parse().unwrap());
        sent.append("x-api-key", "the-programs".parse().unwrap());
        strip(&mut sent);
        let cookies: Vec<_> = sent.get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2", "c=3"]);
        assert_eq!(sent[AUTHORIZATION.as_str()], "Bearer of-the-program");
        assert_eq!(sent["x-api-key"], "the-programs");
    }
}
