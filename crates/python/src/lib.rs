//! The Python module `larder_sim`: the workbench's curves, simulations and traces, over NumPy arrays.
//!
//! ```text
//!   arrays <---> columns ---> simulate, mrc, trace of larder-sim
//!                   \-------> work: without the interpreter's lock, until Ctrl-C
//! ```
#![forbid(unsafe_code)]

mod columns;
mod work;

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

use columns::{Arrays, Columns, Reader};
use larder_sim::mrc::{Analysis, Method, OpRule, Settings, Unit as CurveUnit, analyse};
use larder_sim::progress::Progress;
use larder_sim::simulate::{self as simulation, Objective, Outcome, PolicyAtSize, Rules, Size, Unit, Warmup};
use larder_sim::trace::{self as traces, Format};
use larder_sim::{
    CHUNK_REQUESTS, Limited, Op, PENALTY_UNKNOWN_US, Source, SourceError, Stoppable, workload as workloads,
};
use numpy::PyArray1;
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use work::interruptible;

/// The default of `penalty_us`, which Python shows as it stands in the signature.
const _: () = assert!(PENALTY_UNKNOWN_US == 100_000);

type Column<'py> = Option<Bound<'py, PyAny>>;
type Numbers<'py, T> = Bound<'py, PyArray1<T>>;

/// Cache policies, miss-ratio curves and traces, as the program `larder` has them, over NumPy arrays.
///
/// A trace is a column for each field of its requests, an array of whole numbers with one element for each request:
///
/// keys          0 to 2**64 - 1 (of other keys: pandas.factorize(keys)[0])
/// sizes         bytes of the values, or of the items
/// times         seconds, from any zero
/// ops           indexes of larder_sim.OPS; without it every request is a get
/// ttls          seconds that an item lives; 0 = for ever
/// penalties_us  microseconds that a miss costs; 0 = unknown
/// key_sizes     bytes of the keys, if sizes has only the values
///
/// read_trace and workload return such columns by name: miss_ratio_curve(**read_trace("trace.csv")).
/// Bad input raises a ValueError. A remark is a UserWarning. Ctrl-C ends each function.
#[pymodule(name = "larder_sim")]
mod module {
    use super::*;
    #[pymodule_export]
    use super::{miss_ratio_curve, policies, read_trace, simulate, workload};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("OPS", PyTuple::new(module.py(), Op::ALL.map(Op::name))?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// The miss ratio of LRU by cache size, as two arrays: (sizes, miss_ratios).
///
/// The first point is that of no cache, the last that of a cache without limit; between two points the curve is a
/// straight line: numpy.interp(size, sizes, miss_ratios).
///
/// unit         "bytes" or "objects"; "bytes" if there are sizes
/// overhead     bytes of each item in addition to its size
/// shards       look at this share of the keys only, such as 0.01 (SHARDS of fixed rate)
/// shards_size  look at this many keys at most (SHARDS of fixed size)
/// seed         another number selects other keys
#[pyfunction]
#[pyo3(signature = (keys, sizes=None, times=None, ops=None, ttls=None, penalties_us=None, key_sizes=None, *,
    unit=None, overhead=0, shards=None, shards_size=None, seed=0))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
fn miss_ratio_curve<'py>(
    py: Python<'py>,
    keys: Bound<'py, PyAny>,
    sizes: Column<'py>,
    times: Column<'py>,
    ops: Column<'py>,
    ttls: Column<'py>,
    penalties_us: Column<'py>,
    key_sizes: Column<'py>,
    unit: Option<&str>,
    overhead: u64,
    shards: Option<f64>,
    shards_size: Option<usize>,
    seed: u64,
) -> PyResult<(Numbers<'py, u64>, Numbers<'py, f64>)> {
    let method = match (shards, shards_size) {
        (None, None) => Method::Exact,
        (Some(rate), None) => Method::Rate(rate),
        (None, Some(keys)) => Method::Size(keys),
        _ => return Err(PyValueError::new_err("give shards or shards_size, not both")),
    };
    let columns = Arrays { keys, sizes, times, ops, ttls, penalties_us, key_sizes }.read()?;
    let unit = match unit_of(unit, &columns)? {
        Unit::Objects => CurveUnit::Objects,
        Unit::Bytes => CurveUnit::Bytes,
    };
    let settings =
        Settings { unit, method, ops: OpRule::Obey, item_overhead_bytes: overhead, adjusted: true, seed };
    let mut analysis = [Analysis::new(settings).map_err(PyValueError::new_err)?];
    warn(py, &columns.notices)?;
    let columns = Arc::new(columns);
    let (curve, notice) = interruptible(py, |stop| {
        let mut source = Stoppable::new(Box::new(Reader::new(&columns)), stop.clone(), Arc::default());
        analyse(&mut source, &mut analysis, |_| {}).map_err(|error| error.0)?;
        let notice = analysis[0].check_sample()?;
        Ok((analysis[0].curve(&source.describe()), notice))
    })?;
    warn(py, notice.as_slice())?;
    let (sizes, ratios) = curve.points.iter().map(|point| (point.size, point.miss_ratio)).unzip();
    Ok((PyArray1::from_vec(py, sizes), PyArray1::from_vec(py, ratios)))
}

/// The miss ratios of policies: (capacities, {policy: miss_ratios}), one ratio for each capacity, by rising capacity.
///
/// A policy that cannot run at a capacity has NaN there, and a warning says why.
///
/// capacities  numbers, or words such as "1%" (of the keys or bytes of the trace) and "64m"
/// policies    names of policies(); None = all
/// unit        what a capacity counts, "bytes" or "objects"; "bytes" if there are sizes
/// objective   "requests": miss ratios; "bytes": missed bytes per byte asked for; "time": the mean service time of a
///             get in microseconds. The policy larder saves what is named, and time if nothing is
/// expire      whether items expire, by times and ttls
/// warmup      requests at the start that are not counted: a share below 1, or a number
/// overhead    bytes charged for each item in addition to its size; larder has its own
/// hit_us      microseconds of a look-up
/// penalty_us  microseconds of a miss in addition, where penalties_us has none
/// flash       bytes of flash behind the memory of larder, in the folder for temporary files; None = no flash
/// flash_us    microseconds of a hit on flash in addition
/// compress    how many times shorter the values are that larder compresses, from 1 to 20, where capacities are bytes
///             and there is no flash; None = it compresses nothing
/// seed        starts the random numbers of policies that sample
/// threads     threads that simulate; 0 = one for each core
#[pyfunction]
#[pyo3(signature = (keys, sizes=None, times=None, ops=None, ttls=None, penalties_us=None, key_sizes=None, *,
    capacities, policies=None, unit=None, objective=None, expire=false, warmup=0.0, overhead=0, hit_us=200,
    penalty_us=100_000, flash=None, flash_us=100, compress=None, seed=1, threads=0))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
fn simulate<'py>(
    py: Python<'py>,
    keys: Bound<'py, PyAny>,
    sizes: Column<'py>,
    times: Column<'py>,
    ops: Column<'py>,
    ttls: Column<'py>,
    penalties_us: Column<'py>,
    key_sizes: Column<'py>,
    capacities: Vec<Bound<'py, PyAny>>,
    policies: Option<Vec<String>>,
    unit: Option<&str>,
    objective: Option<&str>,
    expire: bool,
    warmup: f64,
    overhead: u32,
    hit_us: u32,
    penalty_us: u32,
    flash: Option<u64>,
    flash_us: u32,
    compress: Option<f64>,
    seed: u64,
    threads: usize,
) -> PyResult<(Numbers<'py, u64>, Bound<'py, PyDict>)> {
    let columns = Arrays { keys, sizes, times, ops, ttls, penalties_us, key_sizes }.read()?;
    let rules = Rules {
        policies: policies.unwrap_or_else(|| vec!["all".to_owned()]),
        sizes: capacities.iter().map(capacity).collect::<PyResult<_>>()?,
        unit: Some(unit_of(unit, &columns)?),
        ops: None,
        ttls: expire,
        warmup: warmup_of(warmup)?,
        overhead_bytes: overhead,
        hit_us,
        flash_us,
        penalty_us,
        flash_bytes: flash,
        compress_ratio: compress,
        objective: objective.map(objective_of).transpose()?,
        threads,
        seed,
    };
    warn(py, &columns.notices)?;
    let columns = Arc::new(columns);
    let outcome = interruptible(py, |stop| {
        let open = || -> Result<Box<dyn Source>, SourceError> {
            Ok(Box::new(Stoppable::new(Box::new(Reader::new(&columns)), stop.clone(), Arc::default())))
        };
        let outcome = simulation::run(&open, &rules, &mut Progress::new("", true))
            .map_err(|error| in_python(&error))?;
        match &outcome.error {
            Some(error) => Err(in_python(error)),
            None => Ok(outcome),
        }
    })?;
    results(py, &outcome, &rules)
}

/// What [`simulate`] returns.
fn results<'py>(
    py: Python<'py>,
    outcome: &Outcome,
    rules: &Rules,
) -> PyResult<(Numbers<'py, u64>, Bound<'py, PyDict>)> {
    let by_policy = PyDict::new(py);
    let mut capacities = Vec::new();
    for cells in outcome.cells.chunk_by(|one, next| one.policy == next.policy) {
        let figures = cells.iter().map(|cell| figure(cell, rules)).collect();
        by_policy.set_item(&cells[0].policy, PyArray1::from_vec(py, figures))?;
        capacities = cells.iter().map(|cell| cell.capacity).collect();
    }
    let failed = |cell: &PolicyAtSize| {
        let why = cell.run.as_ref().err()?;
        Some(format!("{} at {} {}: {why}", cell.policy, cell.capacity, outcome.unit.name()))
    };
    warn(py, &outcome.cells.iter().filter_map(failed).collect::<Vec<_>>())?;
    Ok((PyArray1::from_vec(py, capacities), by_policy))
}

/// What the objective makes of a run; NaN if there is none, or if no get was counted.
fn figure(cell: &PolicyAtSize, rules: &Rules) -> f64 {
    let Ok(run) = &cell.run else { return f64::NAN };
    let figure = match rules.objective {
        None | Some(Objective::Requests) => run.counts.miss_ratio(),
        Some(Objective::Bytes) => run.counts.byte_hit_ratio().map(|hit| 1.0 - hit),
        Some(Objective::Time) => run.counts.service_us(rules),
    };
    figure.unwrap_or(f64::NAN)
}

/// The names of the policies.
#[pyfunction]
fn policies() -> Vec<&'static str> {
    simulation::policy_names()
}

/// The columns of a trace file, compressed or not, as a dict of arrays. Times count from the first request.
///
/// format    oracle-general, lcs, vscsi, twitter, msr, csv, keys, watch or monitor; None = as the file shows
/// columns   what the columns of a text without a header are, such as "time=1,key=2,size=3"
/// skip_bad  whether lines that cannot be read are left out
/// limit     read this many requests at most
#[pyfunction]
#[pyo3(signature = (path, *, format=None, columns=None, skip_bad=false, limit=None))]
fn read_trace<'py>(
    py: Python<'py>,
    path: PathBuf,
    format: Option<&str>,
    columns: Option<&str>,
    skip_bad: bool,
    limit: Option<u64>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = traces::Options {
        format: format.map(format_of).transpose()?,
        columns: columns.map(str::parse).transpose().map_err(|error| {
            let error: String = error;
            PyValueError::new_err(format!("columns: {error}"))
        })?,
        skip_bad,
    };
    std::fs::metadata(&path).map_err(|error| {
        PyErr::from(std::io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    })?;
    read(py, limit, || traces::open(&path, &options))
}

/// The columns of requests that a law makes, as a dict of arrays, such as workload("zipfian:keys=1m,requests=10m").
///
/// The laws and their parameters are those of the command larder workload --list.
#[pyfunction]
#[pyo3(signature = (words, *, limit=None))]
fn workload<'py>(py: Python<'py>, words: &str, limit: Option<u64>) -> PyResult<Bound<'py, PyDict>> {
    read(py, limit, || workloads::parse(words))
}

/// Reads a source to its end, or `limit` requests of it.
fn read(
    py: Python<'_>,
    limit: Option<u64>,
    open: impl FnOnce() -> Result<Box<dyn Source>, SourceError> + Send,
) -> PyResult<Bound<'_, PyDict>> {
    let columns = interruptible(py, |stop| {
        let source = Limited::new(open().map_err(|error| error.0)?, limit.unwrap_or(u64::MAX));
        let mut source = Stoppable::new(Box::new(source), stop.clone(), Arc::default());
        let mut columns = Columns::new(source.fields());
        let mut chunk = Vec::new();
        while source.fill(&mut chunk, CHUNK_REQUESTS).map_err(|error| error.0)? > 0 {
            chunk.drain(..).for_each(|request| columns.push(&request));
        }
        columns.notices = source.notices();
        Ok(columns)
    })?;
    warn(py, &columns.notices)?;
    columns.into_arrays(py)
}

/// Raises a warning for each remark.
fn warn(py: Python<'_>, remarks: &[String]) -> PyResult<()> {
    for remark in remarks {
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(remark.replace('\0', ""))?, 1)?;
    }
    Ok(())
}

/// An error of the simulators, whose words for flags become those for arguments.
fn in_python(error: &SourceError) -> String {
    error.0.replace("--sizes", "capacities").replace("--ttls", "expire").replace("--", "")
}

fn unit_of(name: Option<&str>, columns: &Columns) -> PyResult<Unit> {
    match name {
        None if columns.fields.sizes => Ok(Unit::Bytes),
        None | Some("objects") => Ok(Unit::Objects),
        Some("bytes") => Ok(Unit::Bytes),
        Some(other) => Err(expected("unit", other, "bytes or objects")),
    }
}

fn objective_of(name: &str) -> PyResult<Objective> {
    Objective::of_name(name).ok_or_else(|| expected("objective", name, "requests, bytes or time"))
}

fn format_of(name: &str) -> PyResult<Format> {
    let found = Format::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| expected("format", name, &Format::names(|_| true)))
}

/// The error for an argument with a name that is not known.
fn expected(argument: &str, given: &str, known: &str) -> PyErr {
    PyValueError::new_err(format!("{argument}: '{given}' is not {known}"))
}

/// A cache size: a number, or words.
fn capacity(given: &Bound<'_, PyAny>) -> PyResult<Size> {
    Size::parse(&given.str()?.to_cow()?)
        .map_err(|error| PyValueError::new_err(format!("capacities: {error}")))
}

fn warmup_of(warmup: f64) -> PyResult<Warmup> {
    match warmup {
        share if share > 0.0 && share < 1.0 => Ok(Warmup::Share(share)),
        count if (0.0..1e18).contains(&count) && count.fract() == 0.0 => Ok(Warmup::Requests(count as u64)),
        other => {
            let why = format!("warmup: {other} is neither a share such as 0.2 nor a count such as 10000");
            Err(PyValueError::new_err(why))
        }
    }
}
