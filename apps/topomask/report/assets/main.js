// The order in which the page of an image experiment fills.

showHead();
showTable();
startCurves();
startModulation();
startExamples();
showSettings();
startMasks().then(finishPage);
