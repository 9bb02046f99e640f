function n(){return null}export{n as Runs};
