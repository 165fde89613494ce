"""The results of a run that has ended: the model, the curve, the confusion matrix, TensorBoard's file and, last of all,
summary.json.
"""

from contextlib import closing

from vcdl.journal.events import UpdateApplied, VersionEvaluated
from vcdl.journal.journal import Journal
from vcdl.report.measures import Report
from vcdl.report.observer import RunObserver, ShieldedObserver
from vcdl.report.plot import Curve, plot_curves
from vcdl.report.summary import summary_of, write_summary
from vcdl.report.tensorboard import write_event_file
from vcdl.run.confusion import leave_confusion_matrix
from vcdl.run.export import export_model
from vcdl.run.finding import read_report
from vcdl.run.folder import RunFolder


def leave_results(folder: RunFolder, job: str, observer: RunObserver) -> Report:
    """Write a run's results from its journal and its last weights; the run counts as finished when summary.json
    is there.

    Each file is replaced as a whole, so doing it again is harmless. Raises VcdlError.
    """
    observer, report = ShieldedObserver(observer), read_report(folder)
    observer.phase("writing model.keras")
    version = export_model(folder, folder.keras_file, report.stop.version if report.stop else None)
    observer.phase("drawing curves.png")
    plot_curves([Curve.of(folder.path.name, report)], folder.plot_file, job)
    leave_confusion_matrix(folder, version)
    with closing(Journal.read_only(folder.journal_file)) as journal:
        write_event_file(folder.tensorboard, report, journal.stream(kinds=(UpdateApplied, VersionEvaluated)))
    write_summary(folder.summary_file, summary_of(job, report))
    return report
