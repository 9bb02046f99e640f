function t(){return null}export{t as Letters};
