//! Tests of the reports. `sample` is a report with one part of each kind.

use proptest::prelude::*;

use super::number::{decimal, grouped, rounded, short, significant, size};
use super::text::Screen;
use super::*;

/// A report with one part of each kind, and names that would break HTML, XML or CSV if they were not escaped.
fn sample() -> Report {
    let wicked = "<script>alert(1)</script>\"'&, \u{7}name";
    let mut table = Table::new("Miss ratio by policy", &["policy", "cache size bytes", "miss ratio", "note"]);
    let policies = ["lru", "s3-fifo", "sieve", "lirs", "arc", "2q", "slru", "fifo", "clock", "w-tinylfu"];
    for (at, policy) in policies.iter().enumerate() {
        let ratio = 0.41 - 0.017 * ((at * 7) % 10) as f64;
        let note = if at == 3 { Cell::Text(wicked.to_owned()) } else { Cell::Empty };
        table.row(vec![
            Cell::Text((*policy).to_owned()),
            Cell::Count(1 << (20 + at)),
            Cell::Number(ratio, 4),
            note,
        ]);
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
        let points =
            (1..=6).map(|run| (f64::from(run), f64::from(run * 3 + 5) * (1.0 + at as f64))).collect();
        bars.series.push(Series { name: name.to_owned(), points, style: Style::Bars });
    }
    let mut requests = Chart::new("Request sizes", "rank", "size (bytes)");
    (requests.x.scale, requests.y.scale) = (Scale::Log, Scale::Log);
    let points = (1..400).map(|n| (f64::from(n), 1e6 / f64::from(n).powf(1.1) + f64::from(n * 37 % 101)));
    requests.series.push(Series { name: "items".to_owned(), points: points.collect(), style: Style::Points });
    Report {
        title: "Eviction policies over a Zipfian workload".to_owned(),
        settings: vec![("seed".to_owned(), "1".to_owned())],
        facts: vec![
            ("trace".to_owned(), wicked.to_owned()),
            ("requests".to_owned(), "400,000".to_owned()),
            ("keys".to_owned(), "20,000".to_owned()),
            (
                "command".to_owned(),
                "larder simulate --workload zipfian:keys=20k,requests=400k,theta=0.99 \
                --sizes 1%,10% --policies lru,s3-fifo,sieve --html out.html"
                    .to_owned(),
            ),
        ],
        parts: vec![
            Part::Heading("Hit ratios".to_owned()),
            Part::Text(
                "Every policy saw the same requests. A lower miss ratio is better; differences below one \
                percent of the requests are within what another seed would change."
                    .to_owned(),
            ),
            Part::Table(table),
            Part::Chart(curves),
            Part::Heading("Memory".to_owned()),
            Part::Chart(memory),
            Part::Chart(bars),
            Part::Chart(requests),
        ],
    }
}

/// If a folder is named in the environment, the sample is written into it for a look with a browser.
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
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org").count()
    );
    assert!(!page.contains("https://") && !page.contains("src="));
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn names_cannot_break_out_of_a_page_or_a_picture() {
    let page = sample().to_html();
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    for part in &sample().parts {
        if let Part::Chart(chart) = part {
            assert!(!chart.to_svg().contains("<script>"));
        }
    }
}

#[test]
fn numbers_are_grouped_shortened_and_never_nan() {
    assert_eq!([grouped(0), grouped(999), grouped(1_234_567)], ["0", "999", "1,234,567"]);
    assert_eq!([decimal(-1234.5, 2), decimal(-0.001, 1), decimal(f64::NAN, 3)], ["-1,234.50", "0.0", "-"]);
    assert_eq!(
        [short(20_000.0), short(1.5e6), short(0.05), short(2e-7), short(250.0)],
        ["20k", "1.5M", "0.05", "2e-7", "250"]
    );
}

#[test]
fn measured_numbers_have_the_digits_that_mean_something() {
    let cases = [
        (0.0, "0"),
        (56.946337697410215, "56.9"),
        (1234567.0, "1,230,000"),
        (999.6, "1,000"),
        (0.00004092, "0.0000409"),
        (-2.0, "-2.00"),
        (f64::NAN, "-"),
        (f64::INFINITY, "-"),
    ];
    for (number, shown) in cases {
        assert_eq!(significant(number, 3), shown);
    }
    assert_eq!([32.0, 0.68, 10_000.0].map(|number| rounded(number, 3)), ["32", "0.68", "10,000"]);
    let mut table = Table::new("", &["us"]);
    table.row(vec![Cell::Rounded(366.646_464, 3)]);
    assert!(text::table(&table, Screen::Plain).contains(" 367\n"));
    assert_eq!(table.to_csv(), "us\n366.646464\n");
    assert!(serde_json::to_string(&table).is_ok_and(|json| json.contains("366.646464")));
}

#[test]
fn a_table_is_aligned_and_fits_a_narrow_terminal() {
    let mut table = Table::new("T", &["policy", "requests", "ratio"]);
    table.row(vec![Cell::Text("lru".into()), Cell::Count(1_234_567), Cell::Number(0.5, 3)]);
    table.row(vec![Cell::Text("a long name of a policy".into()), Cell::Count(7), Cell::Number(f64::NAN, 3)]);
    let plain = text::table(&table, Screen::Plain);
    let lines: Vec<&str> = plain.lines().collect();
    assert!(lines[3].ends_with("1,234,567   0.500") && lines[4].ends_with("        7       -"), "{plain}");
    assert!(plain.is_ascii());
    let narrow = text::table(&table, Screen::Terminal(32));
    assert!(narrow.lines().all(|line| line.chars().count() <= 32), "{narrow}");
}

#[test]
fn csv_keeps_numbers_in_full_and_quotes_words() {
    let mut table = Table::new("T", &["name", "ratio"]);
    table.row(vec![Cell::Text("a, \"b\"".into()), Cell::Number(0.123_456_789_012_345_6, 2)]);
    table.row(vec![Cell::Empty, Cell::Number(f64::INFINITY, 2)]);
    assert_eq!(table.to_csv(), "name,ratio\n\"a, \"\"b\"\"\",0.1234567890123456\n,\n");
}

#[test]
fn json_holds_every_point_and_null_for_what_is_no_number() {
    let json: serde_json::Value = serde_json::from_str(&sample().to_json()).unwrap();
    assert_eq!(json["parts"][2]["table"]["rows"][10][2], serde_json::Value::Null);
    assert_eq!(json["parts"][3]["chart"]["series"][0]["points"].as_array().unwrap().len(), 16);
}

#[test]
fn an_axis_of_bytes_is_marked_in_powers_of_two() {
    let mut chart = Chart::new("C", "cache size", "y");
    chart.x.scale = Scale::Bytes;
    chart.line("", vec![(4.0 * 1048576.0, 1.0), (2.0 * 1073741824.0, 0.5)]);
    let svg = chart.to_svg();
    for mark in ["4 MiB", "64 MiB", "1 GiB"] {
        assert!(svg.contains(&format!(">{mark}</text>")), "{mark}: {svg}");
    }
    assert!(!svg.contains("M</text>"));
}

#[test]
fn stacked_areas_lie_on_each_other() {
    let mut chart = Chart::new("C", "x", "y");
    for height in [3.0, 4.0] {
        let points = vec![(0.0, height), (1.0, height)];
        chart.series.push(Series { name: String::new(), points, style: Style::Stacked });
    }
    let plot = chart::plot(&chart, 400, 300, |_| true);
    assert!(plot.y.ends().2 >= 7.0);
    assert_eq!(plot.elements.matches("class=\"area\"").count(), 2);
}

/// A chart of this many lines, which all end near each other.
fn lines(count: usize) -> Chart {
    let mut chart = Chart::new("C", "x", "y");
    for at in 0..count {
        let end = 0.5 + at as f64 / 1e4;
        chart.line(&format!("policy-{at}"), vec![(0.0, 1.0), (1.0, end)]);
    }
    chart
}

#[test]
fn no_two_lines_look_alike_whatever_their_number() {
    let looks: std::collections::BTreeSet<String> = (0..200).map(|at| look::look(at, "")).collect();
    assert_eq!(looks.len(), 200);
    assert!((0..8).all(|at| !look::look(at, "").contains("dash")), "the first eight differ by colour alone");
}

#[test]
fn a_page_shows_eight_lines_at_first_and_the_others_on_request() {
    let page = Report { parts: vec![Part::Chart(lines(20))], ..Report::default() }.to_html();
    let pressed = |state: bool| page.matches(&format!(" aria-pressed=\"{state}\"")).count();
    assert_eq!((pressed(true), pressed(false)), (8, 12));
    // Two pictures, for wide and for narrow windows.
    assert_eq!((page.matches("\"series s").count(), page.matches("\"series off s").count()), (16, 24));
    let stacked =
        |_| Series { name: "s".to_owned(), points: vec![(0.0, 1.0), (1.0, 1.0)], style: Style::Stacked };
    let whole = Chart { series: (0..20).map(stacked).collect(), ..Chart::new("C", "x", "y") };
    assert!((0..20).all(|at| look::is_shown_first(&whole, at)), "areas are parts of a whole");
}

#[test]
fn the_names_of_lines_stand_at_their_ends_and_apart() {
    let svg = lines(20).to_svg();
    let heights: Vec<f64> = svg
        .split("<g transform=\"translate(")
        .filter_map(|rest| rest.split_once(')')?.0.split_once(' ')?.1.parse().ok())
        .collect();
    let mut sorted = heights[1..].to_vec();
    sorted.sort_by(f64::total_cmp);
    assert_eq!(sorted.len(), 20);
    assert!(sorted.windows(2).all(|two| two[1] - two[0] > 13.8), "{sorted:?}");
    assert_eq!((0..20).filter(|at| svg.contains(&format!(">policy-{at}</text>"))).count(), 20);
    assert!(!lines(1).to_svg().contains("class=\"end\""), "a single line needs no name");
    assert!(lines(60).to_svg().contains("class=\"end off\""), "there is no room for sixty names");
}

#[test]
fn heights_move_apart_by_as_little_as_can_be() {
    assert_eq!(look::spread(&[10.0, 50.0], 0.0, 100.0), [10.0, 50.0]);
    assert_eq!(look::spread(&[50.0, 50.0, 50.0], 0.0, 100.0), [36.0, 50.0, 64.0]);
    assert_eq!(look::spread(&[99.0, 100.0], 0.0, 100.0), [86.0, 100.0]);
    assert_eq!(look::spread(&[0.0, 0.0], 0.0, 100.0), [0.0, 14.0]);
}

/// Numbers that are difficult for axes, and arbitrary ones.
fn value() -> impl Strategy<Value = f64> {
    let odd = [
        0.0,
        -0.0,
        1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
    ];
    prop_oneof![prop::sample::select(odd.to_vec()), any::<f64>(), -10.0..10.0, 1e15..1.000_000_001e15]
}

fn chart() -> impl Strategy<Value = Chart> {
    let style = prop::sample::select(vec![Style::Line, Style::Points, Style::Stacked, Style::Bars]);
    let series = (style, prop::collection::vec((value(), value()), 0..6));
    let scale = || prop::sample::select(vec![Scale::Linear, Scale::Log, Scale::Bytes]);
    (scale(), scale(), prop::collection::vec(series, 0..4)).prop_map(|(x, y, all)| {
        let mut chart = Chart::new("any", "x", "y");
        (chart.x.scale, chart.y.scale) = (x, y);
        let named = all.into_iter().map(|(style, points)| Series { name: "s".to_owned(), points, style });
        chart.series.extend(named);
        chart
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_points_draw_without_panic_and_the_same_twice(chart in chart()) {
        let svg = chart.to_svg();
        prop_assert_eq!(&svg, &chart.to_svg());
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", svg);
        prop_assert!(svg.len() < 100_000);
        let report = Report { parts: vec![Part::Chart(chart)], ..Report::default() };
        prop_assert!(report.to_html().contains("data-frame"));
        prop_assert!(!report.to_text().is_empty() && !report.to_json().is_empty());
    }
}

#[test]
fn numbers_of_bytes_have_the_unit_that_suits_them() {
    let cases = [
        (0.0, "0 bytes"),
        (1023.0, "1,023 bytes"),
        (1023.6, "1 KiB"),
        (1024.0, "1 KiB"),
        (1.93 * 1048576.0, "1.93 MiB"),
        (99.96 * 1048576.0, "100 MiB"),
        (24.0 * 1073741824.0, "24 GiB"),
        (1e13, "9.09 TiB"),
        (5e15, "4,547 TiB"),
        (f64::INFINITY, "-"),
    ];
    for (bytes, shown) in cases {
        assert_eq!(size(bytes), shown);
    }
    let mut table = Table::new("", &["DRAM bytes"]);
    table.row(vec![Cell::Bytes(1536.0)]);
    assert!(text::table(&table, Screen::Plain).contains("1.5 KiB"));
    assert_eq!(table.to_csv(), "DRAM bytes\n1536\n");
    assert!(serde_json::to_string(&table).is_ok_and(|json| json.contains("[1536]")));
}

#[test]
fn a_report_of_interrupted_work_says_so_first() {
    let mut report = sample();
    report.mark_incomplete("interrupted after 7 requests");
    let text = report.to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].ends_with(" (incomplete)") && lines[2].contains("interrupted after 7 requests"),
        "{text}"
    );
    assert!(report.to_html().contains(" (incomplete)</h1>"));
}

#[test]
fn settings_are_in_small_print() {
    let report = sample();
    let page = report.to_html();
    let (open, end) = (page.find("<details><summary>Settings").unwrap(), page.find("</details>").unwrap());
    assert!(page[open..end].contains("<dt>seed</dt><dd>1</dd>") && !page[open..end].contains("20,000"));
    assert!(report.to_text().ends_with("\nSettings\n--------\nseed  1\n"));
    assert!(!Report::default().to_html().contains("<details>"));
}

#[test]
fn a_page_shows_its_first_picture_before_its_first_table() {
    let table = |title: &str| Part::Table(Table::new(title, &["a"]));
    let chart = |title: &str| Part::Chart(Chart::new(title, "x", "y"));
    let order = |parts: Vec<Part>, titles: &[&str]| {
        let page = Report { parts, ..Report::default() }.to_html();
        let at: Vec<_> =
            titles.iter().map(|title| page.find(&format!(">{title}</h")).expect("it is there")).collect();
        assert!(at.is_sorted(), "{titles:?}: {at:?}");
    };
    let parts =
        vec![Part::Text("why".to_owned()), table("t1"), table("t2"), chart("c1"), chart("c2"), table("t3")];
    order(parts, &["c1", "t1", "t2", "c2", "t3"]);
    order(vec![chart("c1"), table("t1"), chart("c2")], &["c1", "t1", "c2"]);
    order(
        vec![table("t1"), Part::Heading("h".to_owned()), table("t2"), chart("c1")],
        &["t1", "h", "t2", "c1"],
    );
}
