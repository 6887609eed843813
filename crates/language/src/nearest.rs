//! The name that was probably meant.

/// The candidate closest to `wanted`, if any is close: a third of the letters may be wrong, or the end missing.
pub(crate) fn nearest<'a>(wanted: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = wanted.chars().count();
    let allowed = (length / 3).max(1);
    // One wrong letter of one or two would make neighbours of all short names.
    let close = |candidate: &str| {
        let distance = strsim::damerau_levenshtein(wanted, candidate);
        let begun = length >= 3 && candidate.starts_with(wanted);
        (begun || length > 2 && distance <= allowed).then_some(distance)
    };
    candidates
        .filter_map(|candidate| Some((close(candidate)?, candidate)))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["python", "python3", "javascript", "java", "c", "go"];

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        for (wanted, expected) in [
            ("pyhton", Some("python")),
            ("pythn", Some("python")),
            ("javascrpt", Some("javascript")),
            ("javas", Some("java")),
            ("pyt", Some("python")),
            ("jav", Some("java")),
            ("x", None),
            ("d", None),
            ("brainfuck", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, NAMES.into_iter()), expected, "{wanted}");
        }
    }
}
