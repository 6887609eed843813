//! What a program will need, as far as its text tells without running it.

use std::collections::BTreeSet;

use sandstorm_provider::Expected;

use crate::prepare::Prepared;

/// How much of each file is looked at: imports stand at the top.
const LOOKED_AT: usize = 64 << 10;

/// Most modules that are named. Whoever imports more imports them whatever we say.
const MOST: usize = 64;

/// What the run's program needs first. `None`: it brings everything itself, as a compiled program does.
pub(crate) fn expected(prepared: &Prepared) -> Option<Expected> {
    if prepared.compile.is_some() {
        return None;
    }
    let interpreter = prepared.run.argv.first()?.into();
    let mut modules = BTreeSet::new();
    if prepared.language.name == "python" {
        let sources = prepared.files.iter().filter(|(path, _)| path.as_str().ends_with(".py"));
        for (_, content) in sources {
            imports(&content[..content.len().min(LOOKED_AT)], &mut modules);
        }
    }
    Some(Expected { interpreter, modules: modules.into_iter().collect() })
}

/// Adds the top-level names of the modules that Python text imports. A word too many or too few costs time and nothing
/// else, so lines are looked at, not syntax.
fn imports(text: &[u8], modules: &mut BTreeSet<String>) {
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_start();
        let named = match (line.strip_prefix(b"import "), line.strip_prefix(b"from ")) {
            (Some(list), _) => list.split(|byte| *byte == b',').collect(),
            (None, Some(one)) => vec![one],
            (None, None) => continue,
        };
        for name in named {
            let name = name.trim_ascii_start();
            let end = name.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            let name = &name[..end.unwrap_or(name.len())];
            if modules.len() < MOST && !name.is_empty() {
                modules.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let mut modules = BTreeSet::new();
        imports(text.as_bytes(), &mut modules);
        modules.into_iter().collect()
    }

    #[test]
    fn every_way_to_import_is_seen() {
        assert_eq!(found("import numpy"), ["numpy"]);
        assert_eq!(found("import numpy as np, os.path\r\nimport sys;x=1\n"), ["numpy", "os", "sys"]);
        assert_eq!(found("x = 1\n    from pandas.core import frame\n"), ["pandas"]);
        assert_eq!(found("from . import mine\nfrom .other import x\n"), Vec::<String>::new());
        assert_eq!(found("print('import numpy')\nimportant = 1\n#import numpy\n"), Vec::<String>::new());
    }

    #[test]
    fn a_hostile_text_gives_a_short_list() {
        let text: String = (0..10_000).map(|n| format!("import m{n}\n")).collect();
        assert_eq!(found(&text).len(), MOST);
        let mut modules = BTreeSet::new();
        imports(b"import \xff\xfe, a\xff\nfrom \n", &mut modules);
        assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["a"]);
    }
}
