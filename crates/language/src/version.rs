//! The version in what a program prints about itself.

/// The first dotted number: `3.11.2` of `Python 3.11.2`, `1.26.8` of `go version go1.26.8 linux/amd64`. Where there is
/// none, the first number at all: the first release of a JDK calls itself `javac 25`.
pub(crate) fn version_in(text: &str) -> Option<&str> {
    let mut plain = None;
    let bytes = text.as_bytes();
    let mut start = 0;
    while start < bytes.len() {
        if !bytes[start].is_ascii_digit() {
            start += 1;
            continue;
        }
        let length = bytes[start..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let number = text[start..start + length].trim_end_matches('.');
        if number.contains('.') && !number.contains("..") {
            return Some(number);
        }
        plain = plain.or(Some(number).filter(|number| !number.contains('.')));
        start += length;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_toolchains_print() {
        for (text, version) in [
            ("Python 3.11.2\n", Some("3.11.2")),
            ("v20.20.2", Some("20.20.2")),
            ("go version go1.26.8 linux/amd64", Some("1.26.8")),
            ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", Some("12.2.0")),
            ("This is perl 5, version 36, subversion 0 (v5.36.0) built for x86_64", Some("5.36.0")),
            ("ruby 3.1.2p20 (2022-04-12 revision 4491bb740a)", Some("3.1.2")),
            ("Lua 5.4.4.", Some("5.4.4")),
            ("javac 21\n", Some("21")),
            ("1..2 then 3.4", Some("3.4")),
            ("no digits", None),
            ("", None),
        ] {
            assert_eq!(version_in(text), version, "{text}");
        }
    }
}
