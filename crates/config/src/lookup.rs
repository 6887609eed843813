//! Where the configuration file and the state directory are.
//!
//! The file is never looked for in the current directory: whoever wrote the folder that an agent works in would
//! then decide how its code is confined.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::ConfigError;

/// The configuration of the whole machine.
pub const SYSTEM_FILE: &str = "/etc/sandstorm/sandstorm.yaml";

const MAX_BYTES: u64 = 1024 * 1024;

/// A file that was found and read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Why somebody else could have written it; only for a file that was named on purpose.
    pub(crate) doubt: Option<String>,
}

/// The file that `config init` writes and that is found without being named: the user's own, or the machine's
/// for root.
pub fn default_file(environment: &Environment, uid: u32) -> PathBuf {
    match user_file(environment) {
        Some(path) if uid != 0 => path,
        _ => PathBuf::from(SYSTEM_FILE),
    }
}

/// Reads the file that applies: the named one, else the user's, else the machine's. The first that exists is
/// the only one read.
pub(crate) fn find(
    flag: Option<&Path>,
    environment: &Environment,
    uid: u32,
    system_file: &Path,
) -> Result<Option<Found>, ConfigError> {
    let named = flag.map(Path::to_owned).or_else(|| environment.get("SANDSTORM_CONFIG").map(PathBuf::from));
    if let Some(path) = named {
        let (text, doubt) = read(&path, uid)?;
        return Ok(Some(Found { path, text, doubt }));
    }
    for path in user_file(environment).into_iter().chain([system_file.to_owned()]) {
        match read(&path, uid) {
            Err(ConfigError::Read { source, .. }) if is_absent(&source) => {}
            Err(error) => return Err(error),
            Ok((_, Some(why))) => return Err(ConfigError::Untrusted { path, why }),
            Ok((text, None)) => return Ok(Some(Found { path, text, doubt: None })),
        }
    }
    Ok(None)
}

/// State of this user: `/var/lib/sandstorm` as root, else below `XDG_STATE_HOME` or `~/.local/state`. A
/// configured `state_dir` goes before it.
pub fn default_state_dir(environment: &Environment, uid: u32) -> Option<PathBuf> {
    if uid == 0 {
        return Some(PathBuf::from("/var/lib/sandstorm"));
    }
    let base = absolute(environment, "XDG_STATE_HOME")
        .or_else(|| absolute(environment, "HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("sandstorm"))
}

fn user_file(environment: &Environment) -> Option<PathBuf> {
    let base = absolute(environment, "XDG_CONFIG_HOME")
        .or_else(|| absolute(environment, "HOME").map(|home| home.join(".config")))?;
    Some(base.join("sandstorm/sandstorm.yaml"))
}

/// The XDG rules ignore relative paths.
fn absolute(environment: &Environment, name: &str) -> Option<PathBuf> {
    environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

fn read(path: &Path, uid: u32) -> Result<(String, Option<String>), ConfigError> {
    use std::io::Read as _;
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    // The opened file is judged, not the path, which could be another file by then.
    let metadata = file.metadata().map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ConfigError::TooLarge(path.to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|_| ConfigError::NotText(path.to_owned()))?;
    Ok((text, doubt(&metadata, uid)))
}

fn doubt(metadata: &Metadata, uid: u32) -> Option<String> {
    let (owner, group, mode) = (metadata.uid(), metadata.gid(), metadata.mode());
    if owner != 0 && owner != uid {
        return Some(format!("it belongs to user {owner}, neither root nor you"));
    }
    if mode & 0o002 != 0 {
        return Some("anybody may write it".to_owned());
    }
    // A group of the same number is the owner's private one, which most distributions make.
    if mode & 0o020 != 0 && group != owner {
        return Some(format!("group {group} may write it"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn environment(pairs: &[(&str, &Path)]) -> Environment {
        Environment::new(pairs.iter().map(|(name, path)| ((*name).into(), path.as_os_str().to_owned())))
    }

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn the_first_of_flag_variable_user_and_system_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (system, user) = (at("etc/sandstorm.yaml"), at("home/.config/sandstorm/sandstorm.yaml"));
        let found = |flag: Option<&Path>, environment: &Environment| {
            find(flag, environment, uid(), &system).unwrap().map(|found| found.text)
        };
        let home = environment(&[("HOME", &at("home"))]);

        assert_eq!(found(None, &home), None);
        write(&system, "system");
        assert_eq!(found(None, &home).as_deref(), Some("system"));
        write(&user, "user");
        assert_eq!(found(None, &home).as_deref(), Some("user"));
        write(&at("named"), "variable");
        let named = environment(&[("HOME", &at("home")), ("SANDSTORM_CONFIG", &at("named"))]);
        assert_eq!(found(None, &named).as_deref(), Some("variable"));
        write(&at("flag"), "flag");
        assert_eq!(found(Some(&at("flag")), &named).as_deref(), Some("flag"));
        write(&at("xdg/sandstorm/sandstorm.yaml"), "xdg");
        let xdg = environment(&[("HOME", &at("home")), ("XDG_CONFIG_HOME", &at("xdg"))]);
        assert_eq!(found(None, &xdg).as_deref(), Some("xdg"));
        let relative = environment(&[("HOME", &at("home")), ("XDG_CONFIG_HOME", Path::new("xdg"))]);
        assert_eq!(found(None, &relative).as_deref(), Some("user"));
    }

    #[test]
    fn a_named_file_must_exist_and_a_found_one_must_be_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path().join("sandstorm.yaml");
        let empty = Environment::default();
        let missing = find(Some(&folder.path().join("none")), &empty, uid(), &system);
        assert!(matches!(missing, Err(ConfigError::Read { .. })));

        write(&system, "");
        std::fs::set_permissions(&system, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(matches!(find(None, &empty, uid(), &system), Err(ConfigError::Untrusted { .. })));
        let named = find(Some(&system), &empty, uid(), &system).unwrap().unwrap();
        assert!(named.doubt.is_some());
    }

    #[test]
    fn a_file_of_another_user_is_doubted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sandstorm.yaml");
        write(&path, "");
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!(doubt(&metadata, metadata.uid()), None);
        if metadata.uid() != 0 {
            assert!(doubt(&metadata, metadata.uid() + 1).is_some());
        } else {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            assert!(doubt(&std::fs::metadata(&path).unwrap(), 0).is_some());
        }
    }

    #[test]
    fn odd_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sandstorm.yaml");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(read(&path, uid()), Err(ConfigError::NotText(_))));
        std::fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).unwrap();
        assert!(matches!(read(&path, uid()), Err(ConfigError::TooLarge(_))));
        assert!(matches!(read(folder.path(), uid()), Err(ConfigError::Read { .. })));
    }

    #[test]
    fn state_directory_by_user() {
        let home = environment(&[("HOME", Path::new("/home/a"))]);
        let xdg = environment(&[("HOME", Path::new("/home/a")), ("XDG_STATE_HOME", Path::new("/s"))]);
        assert_eq!(default_state_dir(&xdg, 0), Some("/var/lib/sandstorm".into()));
        assert_eq!(default_state_dir(&home, 1000), Some("/home/a/.local/state/sandstorm".into()));
        assert_eq!(default_state_dir(&xdg, 1000), Some("/s/sandstorm".into()));
        assert_eq!(default_state_dir(&Environment::default(), 1000), None);
        assert_eq!(default_file(&home, 1000), PathBuf::from("/home/a/.config/sandstorm/sandstorm.yaml"));
        assert_eq!(default_file(&home, 0), PathBuf::from(SYSTEM_FILE));
    }
}
