<?php
// `vcdl project install` put this text here, as there was none. Write your own: uninstall leaves it alone then.
$name = htmlspecialchars(project_config_val("long_name"));
echo "<p>$name trains neural networks on the computers of volunteers. Each computer gets a part of the training data,
    improves the common network with it for a few minutes, and sends back what it has learnt.</p>
    <p>Your computer needs a Python that can train.
    <a href=vcdl_jobs.php>What is trained, how far it is, and your share.</a></p>";
