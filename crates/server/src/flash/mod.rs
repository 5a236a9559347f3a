//! The server's flash tier: opened from its settings before the cache is made, and closed after the last worker.

mod devices;
pub(crate) mod numbers;

use crate::error::RunError;
use crate::settings::{FlashDevice, FlashSettings, Promote, Settings};
use larder_cache::{AdmissionOptions, Cache, Exclusive, Flash, FlashLevel};
use larder_flash::FlashOptions;
use larder_flash::device::Device;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// An open flash tier, with its device.
pub(crate) struct OpenFlash {
    flash: Arc<Flash>,
    device: Arc<dyn Device>,
    memory_bytes: u64,
}

/// What does not change about a flash tier while it is open.
#[derive(Clone, Debug)]
pub struct FlashDescription {
    /// The device, in a few words.
    pub description: String,
    /// Bytes of all zones together.
    pub capacity_bytes: u64,
    /// Bytes of one zone.
    pub zone_bytes: u64,
    /// The most bytes of memory that the tier may take.
    pub memory_bytes: u64,
}

/// Opens the flash tier that the settings describe, if they describe one, and starts its threads.
///
/// # Errors
/// One line that says why the tier cannot be used, and what to do about it.
pub(crate) fn open(settings: &Settings) -> Result<Option<OpenFlash>, RunError> {
    let Some(open) = open_tier(settings, false)? else { return Ok(None) };
    open.flash
        .start()
        .map_err(|error| RunError(format!("cannot start the threads of the flash: {error}")))?;
    Ok(Some(open))
}

/// Erases the flash that the settings describe, whatever it holds, and says in a few words what it is. A server that is
/// started with the same settings finds it empty.
///
/// # Errors
/// One line that says why the flash cannot be used, and what to do about it.
pub fn format(settings: &Settings) -> Result<String, RunError> {
    if settings.flash.devices.iter().any(FlashDevice::is_simulated) {
        return Err(RunError(
            "a simulated drive is blank at every start: there is nothing to be erased".to_owned(),
        ));
    }
    let Some(open) = open_tier(settings, true)? else {
        return Err(RunError("there is no flash to be erased: name it with --flash PATH:SIZE".to_owned()));
    };
    open.flash.close().map_err(|error| RunError(format!("cannot format the flash: {error}")))?;
    Ok(open.sentence())
}

/// What would keep the tier from opening, as far as that can be known without opening a device, in one line each.
pub(crate) fn problems_of_start(settings: &Settings) -> Vec<String> {
    let mut found: Vec<String> =
        devices::given_twice(&settings.flash).map(|error| error.to_string()).into_iter().collect();
    for device in &settings.flash.devices {
        let FlashDevice::Path { path, size_bytes } = device else { continue };
        let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
        if path.exists() {
            let unfit = devices::unfit(&settings.flash, path, *size_bytes);
            found.extend(unfit.map(|error| format!("cannot use the flash: {error} (--flash PATH:SIZE)")));
            continue;
        }
        if size_bytes.is_none() {
            found.push(format!(
                "cannot use the flash: {device} does not exist: give its size, so that it can be made (--flash \
                 PATH:SIZE)"
            ));
        }
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            found.push(format!("there is no folder {} for the flash (--flash)", folder.display()));
        }
    }
    found
}

/// Opens the flash tier without its threads. With `format` the device is erased first.
fn open_tier(settings: &Settings, format: bool) -> Result<Option<OpenFlash>, RunError> {
    let wanted = &settings.flash;
    if wanted.devices.is_empty() {
        return Ok(None);
    }
    let device = devices::open(wanted, format).map_err(|error| {
        RunError(format!(
            "cannot use the flash: {error} (--flash PATH:SIZE; 'larder format-flash' erases it)"
        ))
    })?;
    let memory_bytes = wanted.memory_for(device.geometry().capacity_bytes());
    let flash = Flash::open(device.clone(), options(wanted, memory_bytes, format)).map_err(|error| {
        RunError(format!(
            "cannot use the flash: {error} ('larder format-flash' with the same flags erases it; --flash-memory \
             gives it memory)"
        ))
    })?;
    Ok(Some(OpenFlash { flash, device, memory_bytes }))
}

fn options(wanted: &FlashSettings, memory_bytes: u64, format: bool) -> FlashOptions {
    // The standard library keys its hashes at random, so the hash of nothing is a random number.
    let seed = RandomState::new().build_hasher().finish();
    FlashOptions {
        memory_bytes,
        segment_bytes: wanted.segment_bytes,
        generations: wanted.generations,
        recover: wanted.recover,
        cutoff_s: wanted.cutoff_s,
        fill_percent: wanted.fill_percent,
        format,
        ..FlashOptions::for_device(0, seed, Arc::new(unix_now_s))
    }
}

fn unix_now_s() -> u32 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs().min(u32::MAX.into()) as u32)
}

impl OpenFlash {
    /// The tier as the cache uses it.
    pub(crate) fn level(&self, settings: &Settings) -> FlashLevel {
        let wanted = &settings.flash;
        FlashLevel {
            flash: self.flash.clone(),
            exclusive: match wanted.promote {
                Promote::Lazy => Exclusive::Lazy,
                Promote::Strict => Exclusive::Strict,
            },
            admission: AdmissionOptions {
                reject_first_s: wanted.admit.reject_first_s,
                only_fetched: wanted.admit.only_read,
                write_bytes_per_day: wanted.write_budget_bytes,
                ..AdmissionOptions::default()
            },
            recover: wanted.recover,
            store_wait_max_ms: wanted.store_wait_ms,
        }
    }

    /// What statistics show of the tier.
    pub(crate) fn describe(&self) -> FlashDescription {
        let geometry = self.device.geometry();
        FlashDescription {
            description: self.device.describe(),
            capacity_bytes: geometry.capacity_bytes(),
            zone_bytes: geometry.zone_bytes,
            memory_bytes: self.memory_bytes,
        }
    }

    /// The tier in a few words, for the log.
    pub(crate) fn sentence(&self) -> String {
        let geometry = self.device.geometry();
        format!(
            "{}: {} MiB in {} zones, {} MiB of memory",
            self.device.describe(),
            geometry.capacity_bytes() >> 20,
            geometry.zones,
            self.memory_bytes >> 20
        )
    }

    /// Closes the tier after the last worker has ended, and marks the device as cleanly closed. If a cache is given,
    /// its items are written to flash first (`save` of `[flash.tuning]`) or counted as lost.
    pub(crate) fn close(self, cache: Option<&Arc<Cache>>, settings: &Settings) {
        if let Some(cache) = cache {
            let started = Instant::now();
            let saved = if settings.flash.save { cache.save_to_flash() } else { cache.leave_to_flash() };
            tracing::info!(
                "memory {} in {:.1} s: {} items written, {} there already, {} lost",
                if settings.flash.save { "saved to flash" } else { "left" },
                started.elapsed().as_secs_f64(),
                saved.written,
                saved.clean,
                saved.lost
            );
        }
        if let Err(error) = self.flash.close() {
            tracing::error!(
                "the flash was not closed cleanly: {error}; the next start recovers as after a crash"
            );
        }
    }
}
