//! Registering sandboxes while the proxy runs, and having what is open follow.

use std::sync::Arc;
use std::time::Duration;

use egret_policy::{NotRegistrable, Registration};

use super::{Egress, live};
use crate::audit::{Event, Sandbox, Text};
use crate::identity::{self, Entry, Put, RegistryError, Revocation, Snapshot, Wanted};

/// Why a sandbox is not registered. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum NotRegistered {
    /// The configuration does not permit it.
    #[error(transparent)]
    Forbidden(#[from] NotRegistrable),
    /// It names a policy that does not exist.
    #[error("there is no policy `{}`", .0.escape_debug())]
    NoPolicy(Arc<str>),
    /// It asks for a token, and there are no keys that one could be verified with.
    #[error("`auth` is \"token\", and the configuration has no `identity.token_keys`")]
    NoKeys,
    /// A `[[sandbox]]` of the configuration has this ID.
    #[error("the configuration has a [[sandbox]] of this ID")]
    Configured,
    /// It can't be used, or not be written down.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// What was removed, and whether that was written down.
type Removed = (Arc<Entry>, Result<(), RegistryError>);

impl Egress {
    /// What is registered now.
    #[must_use]
    pub fn registered(&self) -> Arc<Snapshot> {
        self.parts.identities.registry.snapshot()
    }

    /// Why this registration identifies nobody under the policy in force, if it does not.
    #[must_use]
    pub fn unusable(&self, registration: &Registration) -> Option<String> {
        self.permits(registration).err().map(|error| error.to_string())
    }

    /// How much longer it may be unused.
    #[must_use]
    pub fn unused_for(&self, entry: &Entry) -> Duration {
        self.parts.identities.registry.unused_for(entry)
    }

    /// Registers a sandbox, or replaces or renews its registration. What is open is decided again
    /// where that changes who its client is or what holds for it. Blocks until it is on the disk.
    ///
    /// # Errors
    /// It is not registered, and nothing has changed.
    pub fn register(&self, id: &str, wanted: Wanted) -> Result<Put, NotRegistered> {
        let checked = wanted.check(id)?;
        let registration = Arc::clone(&checked.registration);
        self.permits(&registration)?;
        if self.policy.load().sandboxes.has_id(id) {
            return Err(NotRegistered::Configured);
        }
        let put = self.parts.identities.registry.put(checked, identity::now())?;
        let change = match put {
            Put::Created => "registered",
            Put::Replaced => "replaced",
            Put::Renewed => return Ok(put),
        };
        self.changed(&registration, change, true);
        Ok(put)
    }

    /// Removes a registration: its clients are nobody, what they have open is closed, and its tokens
    /// are revoked. `None` if there is none. Blocks until that is on the disk.
    ///
    /// # Errors
    /// That counts, but only until this process ends: it could not be written down.
    pub fn deregister(&self, id: &str) -> Option<Result<(), String>> {
        let (entry, removed) = self.removed(self.parts.identities.registry.remove(id), "deleted")?;
        let revoked = self.revoke(Revocation::Sandbox(entry.registration.id.to_string()));
        Some(removed.map_err(|error| error.to_string()).and(revoked.map_err(|error| error.to_string())))
    }

    /// Removes the registrations whose time has come. Blocks.
    pub fn expire_registered(&self) {
        let (registry, now) = (&self.parts.identities.registry, identity::now());
        for id in registry.over(now) {
            if let Some((_, Err(error))) = self.removed(registry.remove_over(&id, now), "expired") {
                tracing::error!(%error, sandbox = %id, "an expired sandbox comes back with a restart");
            }
        }
    }

    /// Tells of a removal, if there was one.
    fn removed(&self, removed: Option<Removed>, change: &'static str) -> Option<Removed> {
        let (entry, kept) = removed?;
        self.changed(&entry.registration, change, kept.is_ok());
        Some((entry, kept))
    }

    fn permits(&self, registration: &Registration) -> Result<(), NotRegistered> {
        let policy = self.policy.load();
        policy.sandboxes.registrable.check(registration)?;
        if !policy.has(&registration.policy) {
            return Err(NotRegistered::NoPolicy(Arc::clone(&registration.policy)));
        }
        if registration.by_token && !self.parts.identities.tokens_are_on() {
            return Err(NotRegistered::NoKeys);
        }
        Ok(())
    }

    fn changed(&self, registration: &Registration, change: &'static str, kept: bool) {
        self.identities_changed();
        let source = registration.sources.iter().map(|source| Text::from(source.to_string())).collect();
        let (sandbox, policy) = (Text::from(&registration.id), Text::from(&registration.policy));
        self.parts.audit.event(&Event::Sandbox(Sandbox { sandbox, change, policy, source, kept }));
    }

    /// Has whatever is open, idle connections too, asked whether its client still holds.
    pub(super) fn identities_changed(&self) {
        self.parts.signals.identities_changed();
        self.recheck_pool();
    }

    /// Lets go of idle connections that would no longer be permitted, or would go another way.
    pub(super) fn recheck_pool(&self) {
        let (policy, registered) = (self.policy(), self.registered());
        self.pool.retain(|intent, upstream| {
            self.may_lie_idle(intent, upstream)
                && live::still_allowed(&policy, &registered.registered, intent, upstream.address(), None)
        });
    }
}
