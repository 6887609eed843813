//! The providers that exist, by name. The binary fills it; everyone else only reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use crate::Provider;

/// Providers by name, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct Registry(BTreeMap<String, Arc<dyn Provider>>);

/// Two providers with one name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there are two providers called `{0}`")]
pub struct DuplicateProvider(pub String);

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn register(&mut self, provider: Arc<dyn Provider>) -> Result<(), DuplicateProvider> {
        let name = provider.info().name.clone();
        if self.0.contains_key(&name) {
            return Err(DuplicateProvider(name));
        }
        self.0.insert(name, provider);
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Provider>> {
        self.0.values()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryProvider;

    #[test]
    fn names_are_unique_and_sorted() {
        let mut registry = Registry::new();
        registry.register(Arc::new(MemoryProvider::named("b"))).unwrap();
        registry.register(Arc::new(MemoryProvider::named("a"))).unwrap();
        let twice = registry.register(Arc::new(MemoryProvider::named("a")));
        assert_eq!(twice, Err(DuplicateProvider("a".into())));
        assert_eq!(registry.iter().map(|provider| &provider.info().name[..]).collect::<Vec<_>>(), ["a", "b"]);
        assert!(registry.get("b").is_some() && registry.get("c").is_none());
    }
}
