// The order in which the page of a particle experiment fills.

showHead();
startTable();
startCurves();
startRollouts();
showSettings();
startCloud().then(finishPage);
