use super::*;

fn with_file(name: &str, text: &str, manager: Manager) -> Option<String> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    index(manager, &Environment::new([("HOME".into(), home.path().into())]))
}

#[test]
fn files_of_each_package_manager_are_read() {
    let cases = [
        (Manager::Pip, ".config/pip/pip.conf", "[global]\nindex-url = https://a.example/simple\n"),
        (Manager::Npm, ".npmrc", "//x/:_authToken=1\nregistry=https://a.example/simple\n"),
        (Manager::Go, ".config/go/env", "GOFLAGS=-x\nGOPROXY=off,https://a.example/simple,direct\n"),
        (
            Manager::Cargo,
            ".cargo/config.toml",
            "[source.crates-io]\nreplace-with = 'm'\n[source.m]\nregistry = 'https://a.example/simple'\n",
        ),
        (
            Manager::Maven,
            ".m2/settings.xml",
            "<settings><mirrors><!-- <mirror><url>https://no.example</url><mirrorOf>*</mirrorOf></mirror> -->\
             <mirror><mirrorOf>other</mirrorOf><url>https://no.example</url></mirror>\
             <mirror><mirrorOf>central</mirrorOf><url>https://a.example/simple</url></mirror></mirrors></settings>",
        ),
        (Manager::Gem, ".gemrc", "---\n:verbose: true\n:sources:\n- https://a.example/simple\n"),
    ];
    for (manager, name, text) in cases {
        assert_eq!(
            with_file(name, text, manager).as_deref(),
            Some("https://a.example/simple"),
            "{manager:?}"
        );
    }
}

#[test]
fn what_is_no_address_is_nothing() {
    assert_eq!(with_file(".npmrc", "save=true\n", Manager::Npm), None);
    assert_eq!(with_file(".npmrc", "registry=/srv/mirror\n", Manager::Npm), None);
    assert_eq!(with_file(".config/go/env", "GOPROXY=direct\n", Manager::Go), None);
}

#[test]
fn a_variable_is_stronger_than_a_file() {
    let environment = Environment::new([("PIP_INDEX_URL".into(), "https://b.example/".into())]);
    assert_eq!(index(Manager::Pip, &environment).as_deref(), Some("https://b.example/"));
}

#[test]
fn credentials_are_taken_out_of_an_address() {
    let split = |address: &str| {
        let IndexSource { address, credentials, .. } = split(String::from(address));
        (address.unwrap(), credentials)
    };
    assert_eq!(split("https://a.example/x@y"), ("https://a.example/x@y".to_owned(), None));
    let (address, credentials) = split("https://me:p%40ss@a.example:81/x");
    assert_eq!((address.as_str(), credentials.as_deref()), ("https://a.example:81/x", Some("me:p@ss")));
}
