//! Cookies of programs behind the port proxy.
//!
//! All ports of all sandboxes share one host, and so does the API. A program's cookies are therefore renamed and bound
//! to its own path: the browser keeps them under a name that only this port's requests get back, whatever domain and
//! path the program asked for. Cookies under other names were not set by the program, and do not reach it.

use http::header::{COOKIE, HeaderMap, HeaderValue, SET_COOKIE};

use super::headers::Mount;

const MAX_COOKIES: usize = 50;
const MAX_COOKIE: usize = 4096;

fn marker(mount: Mount) -> String {
    format!("sbx-{}-{}-", mount.sandbox.bare(), mount.port)
}

/// Leaves of a request's cookies those that this port set, under the names that it gave them.
pub(crate) fn outbound(headers: &mut HeaderMap, mount: Mount) {
    let marker = marker(mount);
    let sent: Vec<String> =
        headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
    headers.remove(COOKIE);
    let own: Vec<&str> = sent
        .iter()
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().strip_prefix(&marker))
        .collect();
    if let Some(value) = (!own.is_empty()).then(|| HeaderValue::from_str(&own.join("; ")).ok()).flatten() {
        headers.insert(COOKIE, value);
    }
}

/// Renames what an answer sets and binds it to the port's path.
pub(crate) fn inbound(headers: &mut HeaderMap, mount: Mount) {
    let set: Vec<String> = headers
        .get_all(SET_COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(str::to_owned)
        .collect();
    headers.remove(SET_COOKIE);
    for cookie in set.iter().filter(|cookie| cookie.len() <= MAX_COOKIE).take(MAX_COOKIES) {
        if let Some(value) = confined(cookie, mount).and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.append(SET_COOKIE, value);
        }
    }
}

/// Takes the domains from cookies that an answer sets: without one a cookie goes back to this host alone.
pub(crate) fn keep_on_host(headers: &mut HeaderMap) {
    let set: Vec<HeaderValue> = headers.get_all(SET_COOKIE).iter().cloned().collect();
    headers.remove(SET_COOKIE);
    for cookie in set.iter().filter_map(|value| value.to_str().ok()).take(MAX_COOKIES) {
        let is_domain =
            |part: &&str| part.split('=').next().unwrap_or_default().trim().eq_ignore_ascii_case("domain");
        let mut parts = cookie.split(';').map(str::trim);
        let pair = parts.next().unwrap_or_default();
        let kept: Vec<&str> = std::iter::once(pair).chain(parts.filter(|part| !is_domain(part))).collect();
        if let Ok(value) = HeaderValue::from_str(&kept.join("; ")) {
            headers.append(SET_COOKIE, value);
        }
    }
}

fn confined(cookie: &str, mount: Mount) -> Option<String> {
    let mut parts = cookie.split(';').map(str::trim);
    let pair = parts.next().filter(|pair| pair.contains('='))?;
    let mut text = format!("{}{pair}; Path={}/", marker(mount), mount.prefix());
    for part in parts {
        let name = part.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        // The rest could widen who gets the cookie; a lifetime and a stricter rule cannot.
        if matches!(name.as_str(), "expires" | "max-age" | "httponly" | "secure") {
            text.push_str("; ");
            text.push_str(part);
        }
    }
    text.push_str("; SameSite=Lax");
    Some(text)
}

#[cfg(test)]
mod tests {
    use sandstorm_types::SandboxId;

    use super::*;

    fn mount(port: u16) -> Mount {
        Mount { sandbox: SandboxId::from_bits(7), port }
    }

    #[test]
    fn on_a_host_of_its_own_a_cookie_stays_there() {
        let mut answer = HeaderMap::new();
        for cookie in ["sid=1; Domain=sandbox.test; Path=/; HttpOnly", "domain=2; DOMAIN = .test", "plain=3"]
        {
            answer.append(SET_COOKIE, cookie.parse().unwrap());
        }
        keep_on_host(&mut answer);
        let set: Vec<_> = answer.get_all(SET_COOKIE).iter().collect();
        assert_eq!(set, ["sid=1; Path=/; HttpOnly", "domain=2", "plain=3"]);
    }

    #[test]
    fn a_port_gets_back_its_own_cookies_only() {
        let mut answer = HeaderMap::new();
        answer.append(
            SET_COOKIE,
            HeaderValue::from_static("sid=1; Domain=test; Path=/; HttpOnly; SameSite=None"),
        );
        answer.append(SET_COOKIE, HeaderValue::from_static("no-pair"));
        inbound(&mut answer, mount(8000));
        let set = answer.get_all(SET_COOKIE).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        let name = marker(mount(8000));
        let path = mount(8000).prefix();
        assert_eq!(set, [format!("{name}sid=1; Path={path}/; HttpOnly; SameSite=Lax")]);

        let cookies = format!("session=ours; {name}sid=1; {name}b=2; {}sid=3", marker(mount(8001)));
        let mut sent = HeaderMap::from_iter([(COOKIE, cookies.parse().unwrap())]);
        outbound(&mut sent, mount(8000));
        assert_eq!(sent[COOKIE], "sid=1; b=2");
        let mut sent = HeaderMap::from_iter([(COOKIE, cookies.parse().unwrap())]);
        outbound(&mut sent, mount(9));
        assert!(!sent.contains_key(COOKIE));
    }
}
