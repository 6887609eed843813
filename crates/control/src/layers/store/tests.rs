use sandstorm_types::TenantId;

use super::*;

#[derive(Debug)]
struct Copy;

impl Extract for Copy {
    fn extract(&self, archive: &mut dyn io::Read, into: &Path, _: u64) -> io::Result<u64> {
        io::copy(archive, &mut File::create(into.join("all"))?)
    }

    fn pack(&self, _: &Path, _: Option<&str>, _: &mut dyn io::Write) -> io::Result<()> {
        Ok(())
    }
}

async fn put(store: &Store, key: &str, bytes: usize) {
    let claim = store.claim(&OpContext::new(TenantId::LOCAL), &store.layer_claim("pip", key)).await.unwrap();
    let archive = ByteStream::from(Bytes::from(vec![b'x'; bytes]));
    let extract: Arc<dyn Extract> = Arc::new(Copy);
    assert_eq!(store.keep_layer("pip", key, archive, &extract, &claim).await.unwrap(), bytes as u64);
}

fn used_at(store: &Store, key: &str, seconds: u64) {
    let file = File::options().write(true).open(store.layer_claim("pip", key)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

#[tokio::test]
async fn the_least_recently_used_goes_first_but_never_one_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().to_owned(), 25);
    for (age, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
        put(&store, key, 10).await;
        used_at(&store, key, age as u64);
    }
    let held = File::options().read(true).open(store.layer_claim("pip", "a")).unwrap();
    held.lock_shared().unwrap();
    store.shrink("pip", "d");
    let there = |key: &str| store.layer("pip", key).is_dir();
    assert_eq!(["a", "b", "c", "d"].map(there), [true, false, false, true]);
    drop(held);
    store.shrink("pip", "d");
    assert!(there("a"), "what fits was removed");
}

#[tokio::test]
async fn a_layer_is_used_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().to_owned(), u64::MAX);
    assert!(store.use_layer("pip", "a").unwrap().is_none());
    put(&store, "a", 10).await;
    let first = store.use_layer("pip", "a").unwrap();
    let second = store.use_layer("pip", "a").unwrap();
    assert!(first.is_some() && second.is_some(), "two may use one layer");
    drop((first, second));
    let cx = OpContext::new(TenantId::LOCAL);
    let making = store.claim(&cx, &store.layer_claim("pip", "a")).await.unwrap();
    assert!(store.use_layer("pip", "a").unwrap().is_none(), "used while it is being made");
    drop(making);
    assert!(store.use_layer("pip", "a").unwrap().is_some());
}

#[tokio::test]
async fn a_claim_waits_for_the_other_and_can_be_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().to_owned(), u64::MAX);
    let path = store.layer_claim("pip", "a");
    let cx = OpContext::new(TenantId::LOCAL);
    let first = store.claim(&cx, &path).await.unwrap();
    let hasty = cx.clone().with_timeout(Duration::from_millis(120));
    assert_eq!(store.claim(&hasty, &path).await.unwrap_err().kind(), ErrorKind::Timeout);
    drop(first);
    store.claim(&cx, &path).await.unwrap();
}

#[tokio::test]
async fn what_a_dead_process_left_is_cleared_away_and_work_under_way_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().to_owned(), u64::MAX);
    put(&store, "a", 10).await;
    let [old, new, gone] = [".new-old", ".new-now", "b.gone"].map(|name| store.layer("pip", name));
    for path in [&old, &new, &gone] {
        fs::create_dir_all(path.join("content")).unwrap();
    }
    for path in [&old, &gone] {
        File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    store.shrink("pip", "a");
    assert_eq!([&old, &new, &gone].map(|path| path.is_dir()), [false, true, false]);
    assert!(store.layer("pip", "a").is_dir());
}
