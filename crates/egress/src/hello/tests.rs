use proptest::prelude::*;

use super::*;

fn with_length_u16(content: &[u8]) -> Vec<u8> {
    [&u16::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length_u16(data)].concat()
}

fn name_entry(name: &[u8]) -> Vec<u8> {
    [&[NAME_TYPE_HOST][..], &with_length_u16(name)].concat()
}

fn name_extension(names: &[&[u8]]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|name| name_entry(name)).collect();
    extension(EXTENSION_SERVER_NAME, &with_length_u16(&list))
}

fn handshake(extensions: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend(with_length_u16(&extensions.concat()));
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO][..], &length[1..], &body].concat()
}

fn records(handshake: &[u8], size: usize) -> Vec<u8> {
    handshake
        .chunks(size)
        .flat_map(|chunk| [&[HANDSHAKE, 3, 1][..], &with_length_u16(chunk)].concat())
        .collect()
}

/// A small valid hello for the proxy's tests.
pub(crate) fn hello_for(names: &[&str]) -> Vec<u8> {
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let extensions = if names.is_empty() { vec![] } else { vec![name_extension(&names)] };
    records(&handshake(&extensions), 1 << 14)
}

/// The same with an encrypted hello inside.
pub(crate) fn encrypted_hello_for(name: &str) -> Vec<u8> {
    let inner = extension(EXTENSION_ENCRYPTED_HELLO, &[0; 40]);
    records(&handshake(&[name_extension(&[name.as_bytes()]), inner]), 1 << 14)
}

fn named(name: &str) -> Result<Hello, HelloError> {
    Ok(Hello { server_name: Some(name.as_bytes().to_vec()), encrypted: false })
}

#[test]
fn reads_the_name() {
    assert_eq!(parse(&hello_for(&["example.com"])), named("example.com"));
    assert_eq!(parse(&hello_for(&[])), Ok(Hello { server_name: None, encrypted: false }));
    assert!(parse(&encrypted_hello_for("example.com")).unwrap().encrypted);
}

#[test]
fn reads_it_across_any_split() {
    let plain =
        handshake(&[extension(10, &[0; 300]), name_extension(&[b"example.com"]), extension(51, &[1; 1300])]);
    for size in [1, 2, 3, 7, 64, 500, 1 << 14] {
        let stream = records(&plain, size);
        assert_eq!(parse(&stream), named("example.com"), "records of {size}");
        for cut in 0..stream.len() {
            assert_eq!(parse(&stream[..cut]), Err(HelloError::Incomplete), "cut at {cut}, records of {size}");
        }
    }
}

#[test]
fn later_bytes_change_nothing() {
    let mut stream = hello_for(&["example.com"]);
    stream.extend([20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 4, 1, 2, 3, 4]);
    assert_eq!(parse(&stream), named("example.com"));
}

#[test]
fn two_names_are_refused() {
    assert_eq!(parse(&hello_for(&["example.com", "evil.example"])), Err(HelloError::Malformed));
    let twice = handshake(&[name_extension(&[b"example.com"]), name_extension(&[b"evil.example"])]);
    assert_eq!(parse(&records(&twice, 1 << 14)), Err(HelloError::Malformed));
}

#[test]
fn lengths_that_disagree_are_refused() {
    let good = handshake(&[name_extension(&[b"example.com"])]);
    // The extension block, the extension, the list and the name each one byte too long or too short.
    let block = 4 + 2 + 32 + 1 + 4 + 2;
    for place in [block + 1, block + 2 + 3, block + 2 + 5, block + 2 + 8] {
        for change in [1, u8::MAX] {
            let mut bad = good.clone();
            bad[place] = bad[place].wrapping_add(change);
            assert_eq!(parse(&records(&bad, 1 << 14)), Err(HelloError::Malformed), "{place} by {change}");
        }
    }
}

#[test]
fn other_protocols_are_not_tls() {
    for stream in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", b"\0\0\0", &[22, 2, 0], &[128, 46, 1, 3, 1]]
    {
        assert_eq!(parse(stream), Err(HelloError::NotTls), "{stream:?}");
    }
}

#[test]
fn endless_hellos_end() {
    let mut stream = vec![];
    let mut claimed = vec![CLIENT_HELLO, 0, 0x3f, 0xff];
    claimed.extend(vec![0; 1 << 14]);
    stream.extend(records(&claimed[..MAX_BYTES - 10], 1024));
    assert_eq!(parse(&stream), Err(HelloError::Malformed));
    assert_eq!(parse(&records(&[CLIENT_HELLO, 0xff, 0xff, 0xff], 4)), Err(HelloError::Malformed));
    assert_eq!(parse(&[HANDSHAKE, 3, 1, 0, 0]), Err(HelloError::Malformed));
    assert_eq!(parse(&records(&[2, 0, 0, 1, 0], 5)), Err(HelloError::Malformed));
}

proptest! {
    #[test]
    fn never_panics_and_never_invents_a_name(stream in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(Hello { server_name: Some(name), .. }) = parse(&stream) {
            prop_assert!(stream.windows(name.len()).any(|window| window == name));
        }
    }

    #[test]
    fn a_flipped_byte_never_panics(place in 0usize..80, value: u8) {
        let mut stream = hello_for(&["example.com"]);
        let place = place % stream.len();
        stream[place] = value;
        let _ = parse(&stream);
    }
}
