//! Reading Prometheus' text form, as far as we write it ourselves.

/// A metric with all its series.
#[derive(Debug, PartialEq)]
pub(crate) struct Family<'a> {
    pub(crate) name: &'a str,
    pub(crate) about: &'a str,
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<Sample<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    /// The family's name, or for a histogram that with `_bucket`, `_sum` or `_count`.
    pub(crate) name: &'a str,
    pub(crate) labels: Vec<(&'a str, String)>,
    pub(crate) value: f64,
}

/// The families of a text, or the first line that is not understood.
pub(crate) fn parse(text: &str) -> Result<Vec<Family<'_>>, String> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut help = ("", "");
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = || format!("not a line of metrics: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or((rest, ""));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(wrong)?;
            let kind = match kind {
                "counter" => Kind::Counter,
                "gauge" => Kind::Gauge,
                "histogram" => Kind::Histogram,
                _ => return Err(wrong()),
            };
            let about = if help.0 == name { help.1 } else { "" };
            families.push(Family { name, about, kind, samples: Vec::new() });
        } else if !line.starts_with('#') {
            let sample = sample(line).ok_or_else(wrong)?;
            let family =
                families.last_mut().filter(|family| belongs(family, sample.name)).ok_or_else(wrong)?;
            family.samples.push(sample);
        }
    }
    Ok(families)
}

fn belongs(family: &Family<'_>, name: &str) -> bool {
    let parts: &[&str] = if family.kind == Kind::Histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
    name.strip_prefix(family.name).is_some_and(|rest| parts.contains(&rest))
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list;
        while !rest.starts_with('}') {
            let (key, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((key, value));
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &rest[1..];
    }
    let value = match rest.trim() {
        "+Inf" => f64::INFINITY,
        number => number.parse().ok()?,
    };
    Some(Sample { name, labels, value })
}

/// A label's value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "# HELP a_total How many.\n# TYPE a_total counter\na_total 3\n\n\
                    a_total{route=\"/v1/{id}\",quoted=\"a\\\"b\\\\c\\nd\"} 1.5\n\
                    # TYPE h histogram\nh_bucket{le=\"0.1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 0.3\nh_count 2\n";
        let families = parse(text).unwrap();
        assert_eq!(
            (families[0].name, families[0].about, families[0].kind),
            ("a_total", "How many.", Kind::Counter)
        );
        let second = &families[0].samples[1];
        let labels = vec![("route", "/v1/{id}".to_owned()), ("quoted", "a\"b\\c\nd".to_owned())];
        assert_eq!((&second.labels, second.value), (&labels, 1.5));
        assert_eq!(families[1].samples.len(), 4);
        for wrong in
            ["a 1\n", "# TYPE a counter\nb 1\n", "# TYPE a counter\na{x=\"1} 1\n", "# TYPE a summary\n"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
