//! Whatever a hostile agent sends, the host's decoder answers: no panic, no endless loop, no memory beyond its limit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{FromAgent, ToAgent};

fuzz_target!(|data: &[u8]| {
    let (first, rest) = data.split_at(data.len() / 2);
    let mut decoder = Decoder::default();
    for piece in [first, rest] {
        decoder.push(piece);
        while let Ok(Some(message)) = decoder.take::<FromAgent>() {
            // What was decoded encodes again to something that decodes to the same.
            let bytes = sandstorm_agent::frame::encode(&message).expect("a decoded message fits");
            let mut again = Decoder::default();
            again.push(&bytes);
            assert_eq!(again.take::<FromAgent>().expect("it decodes"), Some(message));
        }
    }
    let mut decoder = Decoder::default();
    decoder.push(data);
    while let Ok(Some(_)) = decoder.take::<ToAgent>() {}
});
