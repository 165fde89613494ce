<?php
// The project's jobs for its volunteers: what is trained, how far it is, and what this volunteer has contributed.
// `vcdl project install` put this page here, and `vcdl project uninstall` removes it.

require_once("../inc/util.inc");
require_once("../inc/boinc_db.inc");

function vcdl_figures($name) {
    $text = @file_get_contents("vcdl_jobs.json");
    $figures = $text === false ? null : json_decode($text, true);
    return is_array($figures) && isset($figures[$name]) ? $figures[$name] : array();
}

// Format megabytes; 0 means that the size is not known yet.
function vcdl_mb($mb) {
    return $mb ? (float)$mb." MB" : "&ndash;";
}

// The sizes of the runtimes that are sent in addition to the tasks, so that computers need no Python of their own.
function vcdl_runtimes($runtimes) {
    $sizes = array();
    foreach ($runtimes as $each) {
        $sizes[] = htmlspecialchars($each["system"]).": ".round($each["down_mb"])." MB, ".round($each["disk_mb"])." MB";
    }
    return $sizes ? "<li>".tra("Programs are sent once per version. Size of the download, and on the disk:")." ".join("; ", $sizes).".</li>" : "";
}

// Count the valid results of a job, and those of this user; results that the project has purged are not counted.
function vcdl_results_of($job, $user) {
    $db = BoincDb::get(true);
    $name = str_replace("_", "\\_", BoincDb::escape_string($job));
    $found = $db->do_query(
        "SELECT COUNT(*) AS n, COALESCE(SUM(r.userid = ".((int)$user->id)."), 0) AS mine"
        ." FROM DBNAME.result r JOIN DBNAME.workunit w ON w.id = r.workunitid"
        ." WHERE w.name LIKE '$name\\_e%' AND r.validate_state = 1"
    );
    $row = $found ? $found->fetch_object() : null;
    return $row ? array((int)$row->n, (int)$row->mine) : array(0, 0);
}

$user = get_logged_in_user(false);
$jobs = vcdl_figures("jobs");
page_head(tra("What is trained"));
if (!$jobs) {
    echo "<p>".tra("There are no jobs at the moment.")."</p>";
} else {
    echo "<div style='overflow-x: auto'>";
    start_table("table-striped");
    $head = array(tra("Job"), tra("Model and data"), tra("State"), tra("Epoch"), tra("Measured"), tra("Computers"),
        tra("A task's download and upload"));
    if ($user) {
        $head[] = tra("Your share");
    }
    row_heading_array($head);
    foreach ($jobs as $job) {
        $row = array(
            htmlspecialchars($job["job"]),
            htmlspecialchars($job["trains"]),
            htmlspecialchars($job["state"]),
            (int)$job["epoch"]." / ".(int)$job["epochs"],
            htmlspecialchars($job["measured"]),
            (int)$job["hosts"],
            vcdl_mb($job["down_mb"]).", ".vcdl_mb($job["up_mb"]),
        );
        if ($user) {
            list($all, $mine) = vcdl_results_of($job["job"], $user);
            $row[] = $all ? round(100 * $mine / $all, 1)." % ($mine / $all)" : "&ndash;";
        }
        row_array($row);
    }
    end_table();
    echo "</div>";
    if (!$user) {
        echo "<p><a href=login_form.php>".tra("Log in")."</a> ".tra("to see your share.")."</p>";
    }
}
echo "<h3>".tra("What your computer does")."</h3><ul>
    <li>".tra("A task trains the network of a job with a part of its data, for some minutes. In the BOINC manager it has the job's name, followed by epoch and shard.")."</li>
    <li>".tra("It gets the network's weights, a part of the data (kept until the job ends) and a description, and sends back how it changed the weights. Nothing else of your computer is read or sent.")."</li>
    ".vcdl_runtimes(vcdl_figures("runtimes"))."
    <li>".tra("Programs are signed, and BOINC checks the signatures. Data cannot contain programs. Memory, disk and upload of a task are limited.")."</li>
    <li>".tra("Nothing is written outside BOINC's own folder, and a task talks to this project's server only. Your preferences for processor, memory, disk and network apply.")."</li>
    <li>".tra("To leave, choose No new tasks, or Remove: that deletes all files of the project. What was not finished is trained by another computer.")."</li>
    </ul>";
page_tail();
