//! Attacks on the reader, and lines cut anywhere.

use proptest::prelude::*;

use super::*;

const NONCE: &str = "00112233445566778899aabbccddeeff";

fn reader() -> LineReader {
    LineReader::new(&Nonce::for_tests(NONCE))
}

fn line(kind: &str, payload: &[u8]) -> Vec<u8> {
    format!("{NONCE}<{kind}:{}\n", BASE64.encode(payload)).into_bytes()
}

/// Everything that means something.
fn said(reader: &mut LineReader) -> Vec<Piece> {
    let mut all = Vec::new();
    while let Some(piece) = reader.take().unwrap() {
        if !matches!(piece, Piece::Nothing) {
            all.push(piece);
        }
    }
    all
}

fn hear(bytes: &[u8]) -> Vec<Piece> {
    let mut reader = reader();
    reader.push(0, bytes);
    said(&mut reader)
}

fn printed(text: &'static str) -> Piece {
    Piece::Output { stream: Stream::Stdout, bytes: Bytes::from_static(text.as_bytes()) }
}

#[test]
fn what_is_not_ours_says_nothing() {
    let good = line("stdout", b"heard");
    let other = NONCE.replace('0', "1");
    for bad in [
        "plain output\n".to_owned(),
        "\n\n\r\n".to_owned(),
        // Without a nonce, with another one, and with ours somewhere else.
        "<stdout:aGk=\n".to_owned(),
        format!("{other}<stdout:aGk=\n"),
        format!(" {NONCE}<stdout:aGk=\n"),
        format!("x{NONCE}<message:e30=\n"),
        // An echo of what we said.
        format!("{NONCE}>message:e30=\n"),
        format!("{NONCE}>stdin:aGk=\n"),
        // No word, another word, no text, text that is none.
        format!("{NONCE}<\n"),
        format!("{NONCE}<stdout\n"),
        format!("{NONCE}<shutdown:aGk=\n"),
        format!("{NONCE}<stdout:aGk\n"),
        format!("{NONCE}<stdout:!!!!\n"),
        format!("{NONCE}<stdout:aGk= \n"),
        format!("{NONCE}<STDOUT:aGk=\n"),
        format!("{NONCE}<stdout:{}\n", "A".repeat(LINE)),
        "y".repeat(300_000) + "\n",
    ] {
        let stream = [bad.as_bytes(), &good].concat();
        assert_eq!(hear(&stream), [printed("heard")], "{}", &bad[..bad.len().min(90)]);
    }
    let not_text = [b"\xff\xfe\x00 \n".as_slice(), &good].concat();
    assert_eq!(hear(&not_text), [printed("heard")]);
}

#[test]
fn a_line_without_end_is_counted_and_not_kept() {
    let mut reader = reader();
    let piece = [b'x'; 10_000];
    let mut dropped = 0;
    for number in 0..1_000 {
        reader.push(number, &piece);
        while let Some(heard) = reader.take().unwrap() {
            assert_eq!(heard, Piece::Nothing);
            dropped += 1;
        }
        assert!(reader.waiting.len() <= LINE + piece.len());
    }
    assert!(dropped > 900, "{dropped}");
    // The line goes on, whatever it looks like.
    reader.push(1_000, &line("stdout", b"a lie"));
    reader.push(1_001, &line("stdout", b"heard"));
    assert_eq!(said(&mut reader), [printed("heard")]);
    assert_eq!(reader.position(1_002), Position { event: 1_002, skip: 0 });
}

#[test]
fn the_beginning_of_a_line_of_ours_waits_for_its_end() {
    let mut reader = reader();
    let whole = line("stdout", b"heard");
    reader.push(0, b"noise\n");
    reader.push(1, &whole[..20]);
    assert_eq!(said(&mut reader), []);
    assert_eq!(reader.position(2), Position { event: 1, skip: 0 });
    reader.push(2, &whole[20..]);
    assert_eq!(said(&mut reader), [printed("heard")]);
}

#[test]
fn a_message_has_a_longest() {
    let mut reader = reader();
    let part = line("part", &[b'x'; 24 << 10]);
    for number in 0..3 {
        reader.push(number, &part);
        assert!(matches!(reader.take(), Ok(Some(Piece::Nothing))));
    }
    assert_eq!(reader.position(3), Position { event: 0, skip: 0 }, "it begins where its first part does");
    reader.message.resize(MESSAGE - 10, b'x');
    reader.push(3, &part);
    assert!(matches!(reader.take(), Err(WireError::MessageTooLong)));
}

#[test]
fn parts_are_one_message_whatever_comes_between() {
    let stream =
        [line("part", b"{\"a\""), line("stdout", b"x"), b"noise\n".to_vec(), line("message", b":1}")]
            .concat();
    let heard = hear(&stream);
    assert_eq!(heard, [printed("x"), Piece::Message(b"{\"a\":1}".to_vec())]);
}

#[derive(Debug, Clone)]
enum Said {
    Message(Vec<u8>, usize),
    Output(bool, Vec<u8>),
    Noise(Vec<u8>),
}

fn anything() -> impl Strategy<Value = Said> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        (bytes(), 1..60_usize).prop_map(|(bytes, cut)| Said::Message(bytes, cut)),
        (any::<bool>(), bytes()).prop_map(|(out, bytes)| Said::Output(out, bytes)),
        bytes().prop_map(|mut bytes| {
            bytes.retain(|byte| *byte != b'\n');
            bytes.push(b'\n');
            Said::Noise(bytes)
        }),
    ]
}

fn encoded(said: &[Said]) -> (Vec<u8>, Vec<Piece>) {
    let (mut stream, mut meant) = (Vec::new(), Vec::new());
    for one in said {
        match one {
            Said::Message(bytes, cut) => {
                let mut pieces: Vec<&[u8]> = bytes.chunks(*cut).collect();
                let last = pieces.pop().unwrap_or_default();
                pieces.iter().for_each(|piece| stream.extend(line("part", piece)));
                stream.extend(line("message", last));
                meant.push(Piece::Message(bytes.clone()));
            }
            Said::Output(out, bytes) => {
                let (kind, which) =
                    if *out { ("stdout", Stream::Stdout) } else { ("stderr", Stream::Stderr) };
                stream.extend(line(kind, bytes));
                meant.push(Piece::Output { stream: which, bytes: Bytes::copy_from_slice(bytes) });
            }
            Said::Noise(bytes) => stream.extend_from_slice(bytes),
        }
    }
    (stream, meant)
}

proptest! {
    /// However events cut the stream, the same is heard; and whoever goes on at the position after any of it hears the rest.
    #[test]
    fn cut_anywhere_and_taken_over_anywhere(
        said in proptest::collection::vec(anything(), 0..12),
        size in 1..300_usize,
        leave in 0..12_usize,
    ) {
        let (stream, meant) = encoded(&said);
        let events: Vec<&[u8]> = stream.chunks(size).collect();
        let mut first = reader();
        let mut heard = Vec::new();
        let mut place = Position { event: 0, skip: 0 };
        'hearing: for (number, bytes) in events.iter().enumerate() {
            first.push(number as u64, bytes);
            while heard.len() < leave {
                match first.take().unwrap() {
                    Some(Piece::Nothing) => {}
                    Some(piece) => heard.push(piece),
                    None => continue 'hearing,
                }
            }
            place = first.position(number as u64 + 1);
            break;
        }
        if heard.len() < leave {
            prop_assert_eq!(&heard, &meant);
            return Ok(());
        }
        prop_assert_eq!(&heard, &meant[..leave]);
        let mut second = reader();
        for (number, bytes) in events.iter().enumerate().skip(place.event as usize) {
            second.push(number as u64, bytes);
            if number as u64 == place.event {
                second.skip(place.skip);
            }
            while let Some(piece) = second.take().unwrap() {
                if !matches!(piece, Piece::Nothing) {
                    heard.push(piece);
                }
            }
        }
        prop_assert_eq!(heard, meant);
    }

    /// Whatever comes, nothing breaks and nothing grows.
    #[test]
    fn noise_is_only_noise(bytes in proptest::collection::vec(any::<u8>(), 0..5_000), size in 1..700_usize) {
        let mut reader = reader();
        for (number, piece) in bytes.chunks(size).enumerate() {
            reader.push(number as u64, piece);
            while let Some(heard) = reader.take().unwrap() {
                prop_assert!(matches!(heard, Piece::Nothing));
            }
        }
        prop_assert!(reader.waiting.len() <= LINE && reader.message.is_empty());
    }
}
