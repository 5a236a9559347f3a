//! Tests of the reports. `sample` is a report with one of everything.


use super::number::{decimal, grouped, short};
use super::text::Screen;
use super::*;

/// A report with one of everything, and names that would break out of HTML, XML and CSV if they could.
fn sample() -> Report {
    let wicked = "<script>alert(1)</script>\"'&, \u{7}name";
    let mut table = Table::new("Miss ratio by policy", &["policy", "cache size bytes", "miss ratio", "note"]);
    let policies = ["lru", "s3-fifo", "sieve", "lirs", "arc", "2q", "slru", "fifo", "clock", "w-tinylfu"];
    for (at, policy) in policies.iter().enumerate() {
        let ratio = 0.41 - 0.017 * ((at * 7) % 10) as f64;
        let note = if at == 3 { Cell::Text(wicked.to_owned()) } else { Cell::Empty };
        table.row(vec![Cell::Text((*policy).to_owned()), Cell::Count(1 << (20 + at)), Cell::Number(ratio, 4), note]);
    }
    table.row(vec![
        Cell::Text("none".to_owned()),
        Cell::Count(0),
        Cell::Number(f64::NAN, 4),
        Cell::Text("no requests".to_owned()),
    ]);
    let mut curves = Chart::new("Miss-ratio curves", "cache size (bytes)", "miss ratio");
    curves.x.scale = Scale::Log;
    for (at, policy) in policies.iter().enumerate() {
        let point = |n: i32| {
            let x = 1e6 * 2f64.powi(n);
            (x, 0.9 * (-f64::from(n) * (0.12 + 0.012 * at as f64)).exp())
        };
        curves.line(policy, (0..16).map(point).collect());
    }
    let mut memory = Chart::new("Memory per slab class", "time (s)", "memory (MiB)");
    for class in 0..9 {
        let points = (0..400).map(|t| {
            let t = f64::from(t) * 9.0;
            (t, 40.0 + 30.0 * (t / 600.0 + f64::from(class)).sin() + f64::from(class) * t / 200.0)
        });
        memory.series.push(Series {
            name: format!("class {class}"),
            points: points.collect(),
            style: Style::Stacked,
        });
    }
    let mut bars = Chart::new("Service time by policy", "run", "service time (us)");
    for (at, name) in ["p50", "p99", wicked].into_iter().enumerate() {
        let points = (1..=6).map(|run| (f64::from(run), f64::from(run * 3 + 5) * (1.0 + at as f64))).collect();
        bars.series.push(Series { name: name.to_owned(), points, style: Style::Bars });
    }
    let mut requests = Chart::new("Request sizes", "rank", "size (bytes)");
    (requests.x.scale, requests.y.scale) = (Scale::Log, Scale::Log);
    let points = (1..400).map(|n| (f64::from(n), 1e6 / f64::from(n).powf(1.1) + f64::from(n * 37 % 101)));
    requests.series.push(Series { name: "items".to_owned(), points: points.collect(), style: Style::Points });
    Report {
        title: "Eviction policies over a Zipfian workload".to_owned(),
        facts: vec![
            ("trace".to_owned(), wicked.to_owned()),
            ("requests".to_owned(), "400,000".to_owned()),
            ("keys".to_owned(), "20,000".to_owned()),
            ("command".to_owned(), "larder simulate --workload zipfian:keys=20k,requests=400k,theta=0.99 \
                --sizes 1%,10% --policies lru,s3-fifo,sieve --html out.html".to_owned()),
        ],
        parts: vec![
            Part::Heading("Hit ratios".to_owned()),
            Part::Text("Every policy saw the same requests. A lower miss ratio is better; differences below one \
                percent of the requests are within what another seed would change.".to_owned()),
            Part::Table(table),
            Part::Chart(curves),
            Part::Heading("Memory".to_owned()),
            Part::Chart(memory),
            Part::Chart(bars),
            Part::Chart(requests),
        ],
    }
}

/// Where a folder is named, the sample is written into it, to be looked at with a browser.
#[test]
fn a_report_is_one_page_without_links_to_elsewhere() {
    let page = sample().to_html();
    if let Some(folder) = std::env::var_os("LARDER_REPORT_SAMPLE") {
        let folder = std::path::Path::new(&folder);
        std::fs::write(folder.join("report.html"), &page).unwrap();
        for part in &sample().parts {
            if let Part::Chart(chart) = part {
                std::fs::write(folder.join(format!("{}.svg", chart.title)), chart.to_svg()).unwrap();
            }
        }
    }
    assert!(!page.contains("http://") || page.matches("http://").count() == page.matches("http://www.w3.org").count());
    assert!(!page.contains("https://") && !page.contains("src="));
    assert!(page.contains("default-src 'none'"));
}
