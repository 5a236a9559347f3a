//! Workloads: laws that generate requests. The same seed gives the same stream on any machine.
//!
//! A workload is written `law:parameter=value,parameter=value`, such as
//! `zipfian:keys=1m,requests=10m,theta=0.99,sizes=etc,penalties=lognormal,seed=7`; [`list`] gives all laws and
//! parameters.
//!
//! A request is made in three steps. A law chooses the key (`laws`, over `zipf`). The stream adds the time and the
//! command (`stream`). The attributes of the key follow from the seed and the key alone (`attributes`, over `sizes`,
//! `ttls` and `penalties`). Everything that costs more than a multiplication is in tables that are built once
//! (`alias`, `quantile`). Keys are numbers: the initial keys are `0..keys`, and new keys continue upwards.

mod alias;
mod attributes;
mod check;
mod laws;
mod penalties;
mod quantile;
mod rng;
mod settings;
mod sizes;
mod stream;
#[cfg(test)]
mod tests;
mod ttls;
mod words;
mod zipf;

use crate::{Source, SourceError};
use laws::{Drift, Hotspot, Latest, Mix, Uniform, Zipfian};
use settings::{LAWS, Law, PARAMETERS, Settings};
use stream::{Burst, Stream};

pub use check::check;

/// Builds a workload from words such as
/// `zipfian:keys=1m,requests=10m,theta=0.99,sizes=etc,penalties=lognormal,seed=7`.
///
/// Its [`Source::describe`] is the law with every parameter; parsed again, it gives the same stream.
///
/// # Errors
/// An unknown law, parameter or value; the error lists the known ones.
pub fn parse(words: &str) -> Result<Box<dyn Source>, SourceError> {
    let settings = Settings::parse(words)?;
    let base = if settings.law == Law::Burst { settings.burst.base } else { settings.law };
    let burst = settings.law == Law::Burst;
    Ok(match base {
        Law::Zipfian if burst => Box::new(Burst::new(Zipfian::new(&settings), &settings)),
        Law::Hotspot if burst => Box::new(Burst::new(Hotspot::new(&settings), &settings)),
        Law::Uniform if burst => Box::new(Burst::new(Uniform::new(&settings), &settings)),
        Law::Zipfian | Law::Burst => Box::new(Stream::new(Zipfian::new(&settings), &settings)),
        Law::Hotspot => Box::new(Stream::new(Hotspot::new(&settings), &settings)),
        Law::Uniform => Box::new(Stream::new(Uniform::new(&settings), &settings)),
        Law::Latest => Box::new(Stream::new(Latest::new(&settings), &settings)),
        Law::Mix => Box::new(Stream::new(Mix::new(&settings), &settings)),
        Law::Drift => Box::new(Stream::new(Drift::new(&settings), &settings)),
    })
}

/// The names of the laws.
pub fn laws() -> impl Iterator<Item = &'static str> {
    LAWS.iter().map(|(_, name, _)| *name)
}

/// Every law and parameter with its default and meaning, as text for a terminal.
pub fn list() -> String {
    let mut text = String::from("A workload is law:parameter=value,parameter=value,...\n\nLaws\n");
    for (_, name, what) in LAWS {
        text.push_str(&format!("  {name:<13}{what}\n"));
    }
    let defaults = Settings::new(Law::Zipfian);
    text.push_str("\nParameters (counts take k, m, g; powers of ten)\n");
    for parameter in PARAMETERS {
        let laws: Vec<&str> = parameter.laws.iter().map(|law| law.name()).collect();
        let only = if laws.is_empty() { String::new() } else { format!(" ({})", laws.join(", ")) };
        let default = format!("{}={}", parameter.name, defaults.show(parameter.name));
        text.push_str(&format!("  {default:<26}{}{only}\n", parameter.what));
    }
    text.push_str("\nValues\n");
    let values = [
        ("sizes", sizes::Sizes::VALUES),
        ("ttls", ttls::Ttls::VALUES),
        ("penalties", penalties::Penalties::VALUES),
    ];
    for (name, values) in values {
        text.push_str(&format!("  {name:<13}{}\n", values.join(", ")));
    }
    text
}
